"""Benchmarks, compared with other tools: `python -m benchmarks`."""
