"""Find the Gemini CLI and the Node that runs it."""
