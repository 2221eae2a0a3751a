"""The event model, translators from the CLI's formats, and the accumulator of a run's events."""
