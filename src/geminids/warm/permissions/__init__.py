"""Decide the permission requests of the agent."""
