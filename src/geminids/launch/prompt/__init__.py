"""Build the prompt of a run from text, template, instructions and attached files."""
