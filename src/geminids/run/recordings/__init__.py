"""Read the events of recorded runs from files."""
