"""Permissions as rules for the CLI."""
