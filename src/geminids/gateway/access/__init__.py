"""Decide which requests may use the gateway, and read the user's API key."""
