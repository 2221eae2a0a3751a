"""Install Gemini CLI and Node below our own folder."""
