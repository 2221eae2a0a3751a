"""Create ids for runs and sessions, and check session ids that come from the user."""

from __future__ import annotations

import os
import re

__all__ = ["is_session_id", "new_run_id", "new_session_id"]

# The CLI accepts [A-Za-z0-9-_]+ for `--session-id`. This pattern is stricter, so that a path or an
# option such as `--x` is not accepted as an id.
_SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


def is_session_id(text: str) -> bool:
    """Return whether `text` has the form of a session id: 1 to 128 letters, digits, `_` or `-`,
    without `-` at the beginning.

    >>> is_session_id("3e0923c9-7033-438d-a978-a361d8031f47"), is_session_id("../x")
    (True, False)
    """
    return _SESSION_ID.fullmatch(text) is not None


def new_run_id() -> str:
    """Create an id for a run. It is short enough for a log line and safe as a file name."""
    return "run-" + os.urandom(8).hex()


def new_session_id() -> str:
    """Create an id for a session: a random UUID (version 4), as the CLI does.

    The CLI names a session file after the current minute and the first eight characters of the id.
    These characters must be random. Otherwise two sessions could get the same file.

    >>> is_session_id(new_session_id()), len(new_session_id())
    (True, 36)
    """
    # Do not use the module `uuid`: its import would delay the start of the CLI.
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
