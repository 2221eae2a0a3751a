"""Requests, tokens and money of a run."""
