"""Permissions that the agent asks for, and who decides."""
