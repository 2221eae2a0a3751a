"""Share warm processes between programs: a daemon starts the processes and serves runs."""
