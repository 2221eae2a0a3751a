"""Translate the CLI's formats into events."""
