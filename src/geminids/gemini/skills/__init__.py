"""Agent skills: which there are, as the CLI sees them; whether they are sound; adding them for a folder."""
