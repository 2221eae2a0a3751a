"""Translate the output of the CLI, in its different formats, into events."""
