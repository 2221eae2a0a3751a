"""Translate the permissions of a run into policy rules of Gemini CLI."""
