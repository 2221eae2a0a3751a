"""The session and the model that a run announces after its start: the notice is a text, and this reads it."""

from __future__ import annotations

import re
from typing import NamedTuple

from geminids.events.model import Notice
from geminids.ids import is_session_id

__all__ = ["Announced", "announced_in"]

_TEXT = re.compile(r"session (\S+), model (\S+)")


class Announced(NamedTuple):
    """What the CLI said when it had loaded."""

    session_id: str
    model: str


def announced_in(notice: Notice) -> Announced | None:
    """What a notice announces; None where it is another, or names no session that there could be."""
    found = _TEXT.fullmatch(notice.message) if notice.code == "session" else None
    return Announced(found[1], found[2]) if found and is_session_id(found[1]) else None
