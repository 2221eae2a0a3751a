"""Show usage reports: a table, charts and an HTML page."""
