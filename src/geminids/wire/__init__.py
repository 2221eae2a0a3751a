"""What the CLI says, exactly as it says it."""
