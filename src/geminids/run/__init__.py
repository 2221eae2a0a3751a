"""The lanes of a run, and the short ways to use them."""
