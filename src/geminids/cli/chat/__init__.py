"""Parts of `geminids chat`."""
