"""Show runs and chats in a terminal."""
