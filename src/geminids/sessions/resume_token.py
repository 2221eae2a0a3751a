"""Resume lines in chat text: write a line that names a session, and extract it again."""

from __future__ import annotations

import re

import msgspec

from geminids.ids import is_session_id

__all__ = ["ResumeToken", "extract_resume_token", "format_resume_line"]

# Chat clients turn `--` into one or two long dashes. No part is ambiguous, so matching takes linear time.
_DASHES = r"(?:--|—|–|――|——|––|―)"
_LINE = re.compile(
    rf"^[ \t]{{0,100}}`{{0,3}}[ \t]{{0,100}}gemini[ \t]{{1,100}}{_DASHES}resume(?:[ \t]{{1,100}}|=)"
    r"(?P<value>[A-Za-z0-9_][A-Za-z0-9_-]{0,127})[ \t]{0,100}`{0,3}[ \t]{0,100}\r?$",
    re.IGNORECASE | re.MULTILINE,
)


class ResumeToken(msgspec.Struct, frozen=True):
    """A session of an engine. `is_continue`: the newest session (`--resume latest`)."""

    engine: str
    value: str
    is_continue: bool = False


def format_resume_line(token: ResumeToken) -> str:
    """Format the line that a chat shows, in back-ticks.

    >>> format_resume_line(ResumeToken("gemini", "abc-123"))
    '`gemini --resume abc-123`'
    """
    value = "latest" if token.is_continue else token.value
    if token.engine != "gemini":
        raise ValueError(f"the token is for {token.engine!r}, not for gemini")
    if not is_session_id(value):
        raise ValueError("a session id consists of letters, digits, - and _")
    return f"`gemini --resume {value}`"


def extract_resume_token(text: str | None) -> ResumeToken | None:
    """Return the token of the last resume line in a text, or None.

    >>> extract_resume_token("done\\n\\n  `gemini —resume abc-123`")
    ResumeToken(engine='gemini', value='abc-123', is_continue=False)
    """
    values = [match["value"] for match in _LINE.finditer(text or "")]
    if not values:
        return None
    value = values[-1]
    return ResumeToken("gemini", value, value.lower() == "latest")
