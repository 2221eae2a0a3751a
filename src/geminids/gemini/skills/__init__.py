"""Agent skills: find those that the CLI sees, lint them, and add them to a workspace."""
