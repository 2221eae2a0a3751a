"""Turn options into a plan, and write the files that the plan needs."""
