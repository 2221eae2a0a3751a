"""Build the settings that a run adds to the user's settings of the CLI."""
