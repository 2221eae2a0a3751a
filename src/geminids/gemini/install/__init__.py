"""Install Gemini CLI and Node into geminids' own folder."""
