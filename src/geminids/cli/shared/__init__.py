"""Modules that several commands use."""
