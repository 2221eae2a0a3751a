"""Decide how a run ended, from the CLI's output and exit code: with success, or with
which failure.
"""
