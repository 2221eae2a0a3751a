"""Repair session files that are damaged or out of order."""
