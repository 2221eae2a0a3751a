"""Decode the output and the session files of Gemini CLI, and decide how a run ended."""
