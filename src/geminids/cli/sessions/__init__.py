"""The modules of the command `geminids sessions`."""
