"""Check that answers match a JSON Schema."""
