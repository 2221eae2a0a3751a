"""Limit and count what a run uses: access to the gateway, budgets, tokens and cost."""
