"""Options become a plan, and the plan becomes files that the CLI reads."""
