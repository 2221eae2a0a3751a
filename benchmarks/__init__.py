"""Speeds, side by side: `python -m benchmarks`."""
