"""Forward requests to the API."""
