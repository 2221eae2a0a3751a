"""Permission requests of the agent, and their decisions."""
