"""Find Gemini CLI and the Node that runs it on this machine."""
