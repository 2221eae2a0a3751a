"""Authorize requests to the gateway, and read the API key."""
