"""Start child processes, read their output, and end them with all their descendants."""
