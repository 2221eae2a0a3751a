"""The events of a run: their model, the translation of the CLI's output into events, and the
accumulator, which collects them for the result of the run.
"""
