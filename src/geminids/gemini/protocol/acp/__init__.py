"""Encode and decode messages of the Agent Client Protocol."""
