"""How events look to people."""
