"""The warm transport: `gemini --acp` processes stay alive, so a turn starts in milliseconds."""
