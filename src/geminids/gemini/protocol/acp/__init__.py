"""Encode and decode messages of the Agent Client Protocol (ACP), which the command `gemini --acp`
uses.
"""
