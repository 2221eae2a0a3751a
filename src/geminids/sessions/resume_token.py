"""Write and read resume lines. A resume line is a line of a chat message that contains the id of a
session, so that a later message can continue the session.
"""

from __future__ import annotations

import re

import msgspec

from geminids.ids import is_session_id

__all__ = ["ResumeToken", "extract_resume_token", "format_resume_line"]

# Chat clients may replace `--` by one or two long dashes. The pattern is not ambiguous, so matching
# takes linear time.
_DASHES = r"(?:--|—|–|――|——|––|―)"
_LINE = re.compile(
    rf"^[ \t]{{0,100}}`{{0,3}}[ \t]{{0,100}}gemini[ \t]{{1,100}}{_DASHES}resume(?:[ \t]{{1,100}}|=)"
    r"(?P<value>[A-Za-z0-9_][A-Za-z0-9_-]{0,127})[ \t]{0,100}`{0,3}[ \t]{0,100}\r?$",
    re.IGNORECASE | re.MULTILINE,
)


class ResumeToken(msgspec.Struct, frozen=True):
    """A reference to a session of an agent CLI. `engine` is the name of this CLI, such as "gemini".
    `value` is the id of the session.

    If `is_continue` is True, the token means the newest session, not one with a certain id.
    """

    engine: str
    value: str
    is_continue: bool = False


def format_resume_line(token: ResumeToken) -> str:
    """Return the resume line of a session, in backticks. A chat can show this line, so that a later
    message can continue the session. Raises `ValueError` if `token` is not for Gemini CLI (engine
    "gemini"), or if its value is not a session id.

    >>> format_resume_line(ResumeToken("gemini", "abc-123"))
    '`gemini --resume abc-123`'
    """
    value = "latest" if token.is_continue else token.value
    if token.engine != "gemini":
        raise ValueError(f"this resume token belongs to the engine {token.engine!r}, not to 'gemini'")
    if not is_session_id(value):
        raise ValueError(f"{value!r} is not a session id, which has only letters, digits, - and _")
    return f"`gemini --resume {value}`"


def extract_resume_token(text: str | None) -> ResumeToken | None:
    """Find the last resume line in a text, and return the session that it refers to. Return None if
    the text contains no resume line.

    In the example, a chat client has replaced `--` with a long dash.

    >>> extract_resume_token("done\\n\\n  `gemini —resume abc-123`")
    ResumeToken(engine='gemini', value='abc-123', is_continue=False)
    """
    values = [match["value"] for match in _LINE.finditer(text or "")]
    if not values:
        return None
    value = values[-1]
    return ResumeToken("gemini", value, value.lower() == "latest")
