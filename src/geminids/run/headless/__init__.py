"""The headless transport: one process per attempt."""
