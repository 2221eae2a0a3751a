"""Stall notices: explain what a silent run waits for."""
