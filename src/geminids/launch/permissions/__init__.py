"""Translate permissions into rules of the CLI."""
