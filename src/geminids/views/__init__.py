"""Views for people: the terminal, transcripts, plans and usage reports."""
