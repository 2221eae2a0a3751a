"""Answer API requests from a script (prepared answers), without a real model."""
