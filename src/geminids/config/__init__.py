"""Where values come from: files, environment, folders."""
