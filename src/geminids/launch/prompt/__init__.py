"""The prompt: text, templates, files and media."""
