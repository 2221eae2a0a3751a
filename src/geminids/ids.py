"""Create run and session ids, and check session ids that come from outside."""

from __future__ import annotations

import os
import re

__all__ = ["is_session_id", "new_run_id", "new_session_id"]

# The CLI accepts [A-Za-z0-9-_]+ for --session-id. We are stricter: a path or a flag must not pass
# as an id.
_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Return whether `text` has the form of a session id.

    >>> is_session_id("3e0923c9-7033-438d-a978-a361d8031f47"), is_session_id("../x")
    (True, False)
    """
    return _SESSION_ID.fullmatch(text) is not None


def new_run_id() -> str:
    """Create a run id that is short enough for a log line and safe as a file name."""
    return "run-" + os.urandom(8).hex()


def new_session_id() -> str:
    """Create a random UUID (version 4), as the CLI does.

    Its first eight characters must be random: the CLI names a session file by the minute and these
    characters, so two ids that share them could share a file.

    >>> is_session_id(new_session_id()), len(new_session_id())
    (True, 36)
    """
    # Do not use the module `uuid`: its import would delay the spawn.
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
