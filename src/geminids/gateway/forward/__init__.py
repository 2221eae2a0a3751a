"""Forward requests to Google's API. This package contains the HTTP client, the credentials, and the
code that reads token counts and errors from the answers.
"""
