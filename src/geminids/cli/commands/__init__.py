"""The commands of `geminids`, one module for each. `releases.py` contains three commands."""
