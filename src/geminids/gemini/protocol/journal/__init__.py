"""Read the CLI's session files, and rebuild the conversations that are stored in them."""
