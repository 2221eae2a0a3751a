"""The daemon behind `geminids run --warm`."""
