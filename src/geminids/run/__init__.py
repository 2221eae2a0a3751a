"""Run the CLI: start it, report its events, retry it, and return its result."""
