"""Detect that a run is silent, and explain what it waits for."""
