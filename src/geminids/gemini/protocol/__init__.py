"""The formats that Gemini CLI writes: stream-json, ACP, session journals, stderr, endings."""
