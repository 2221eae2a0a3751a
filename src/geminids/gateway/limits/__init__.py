"""Rate limits, and the role and purpose of each request of the CLI."""
