"""The messages of the Agent Client Protocol."""
