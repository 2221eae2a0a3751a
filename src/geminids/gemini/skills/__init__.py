"""Agent skills: find the skills that the CLI uses, check them for errors (lint), and add skills to
a workspace.
"""
