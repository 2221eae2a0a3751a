"""Forward requests to Google's API: the HTTP client, the credentials, and the reading of tokens and
errors from the answers.
"""
