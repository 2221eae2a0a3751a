"""Read session files: records, messages, and the conversation that they produce."""
