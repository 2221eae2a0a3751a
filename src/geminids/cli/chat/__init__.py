"""The modules of the command `geminids chat`."""
