"""Run the agent: start attempts, record their events, retry, stop, and return the result."""
