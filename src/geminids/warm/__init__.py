"""Keep CLI processes (`gemini --acp`) alive between prompts, so that a prompt starts at once."""
