"""How an attempt ended, judged by what the CLI left behind."""
