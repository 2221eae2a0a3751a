"""Scripted answers in place of the API's."""
