"""Parts of `geminids sessions`."""
