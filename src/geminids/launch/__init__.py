"""Build the plan of a run from its options, and write the files that the run needs."""
