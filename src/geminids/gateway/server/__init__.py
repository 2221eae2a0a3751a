"""The HTTP server of the gateway. It runs in its own thread."""
