"""Answers that must match a JSON Schema."""
