"""Ids that we mint, and the check of ids that come from outside."""

from __future__ import annotations

import os
import re

__all__ = ["is_session_id", "new_run_id", "new_session_id"]

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


def new_session_id() -> str:
    """A random UUID (version 4), as the CLI makes them: two that begin alike would share a file within a minute.

    >>> is_session_id(new_session_id()), len(new_session_id())
    (True, 36)
    """
    # Not the module uuid: its import would come before the spawn.
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
