"""Conversations and runs in the formats of other systems."""
