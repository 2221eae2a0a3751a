"""Who may use the gateway, and how it signs in to the API."""
