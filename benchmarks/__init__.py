"""Measure geminids and compare it with other tools: `python -m benchmarks`."""
