"""The HTTP server of the gateway."""
