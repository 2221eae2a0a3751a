"""Decode what Gemini CLI writes: stream-json, ACP, session files, stderr; judge how it ended."""
