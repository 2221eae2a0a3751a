"""Limit the rate of requests to the API, and find out what the CLI uses each request for."""
