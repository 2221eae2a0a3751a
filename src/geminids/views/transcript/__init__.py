"""Conversations as text, Markdown and HTML."""
