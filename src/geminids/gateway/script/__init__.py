"""Scripted answers instead of the API."""
