"""Child processes: start, read, watch, and end the whole process tree."""
