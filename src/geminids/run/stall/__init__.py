"""Stalls: when a silent run says what it waits for, and how that is found out."""
