"""Events of runs that were recorded to a file."""
