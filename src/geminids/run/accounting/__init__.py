"""The requests, tokens and cost of a run."""
