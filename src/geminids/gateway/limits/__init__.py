"""Limits of a run: budgets, rate, models; and what the CLI does with its requests."""
