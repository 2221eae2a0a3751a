"""The warm lane: `gemini --acp` processes that stay, and turns that cost milliseconds."""
