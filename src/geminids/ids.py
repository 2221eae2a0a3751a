"""Ids that we mint, and the check of ids that come from outside."""

from __future__ import annotations

import os
import re

__all__ = ["is_session_id", "new_run_id"]

# The CLI takes [A-Za-z0-9-_]+ for --session-id; a path or a flag must never pass for an id.
_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Say whether `text` can be a session id at all.

    >>> is_session_id("3e0923c9-7033-438d-a978-a361d8031f47"), is_session_id("../x")
    (True, False)
    """
    return _SESSION_ID.fullmatch(text) is not None


def new_run_id() -> str:
    """An id for one run: short enough for a log line, and safe as a file name."""
    return "run-" + os.urandom(8).hex()
