"""Run the CLI headless: each attempt of a run starts its own CLI process."""
