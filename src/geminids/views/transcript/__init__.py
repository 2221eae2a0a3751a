"""Show stored conversations in a terminal, as Markdown, or as HTML."""
