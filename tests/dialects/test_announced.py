"""What a run announces when the CLI has loaded."""

from __future__ import annotations

import pytest

from geminids.dialects.announced import announced_in
from geminids.events.model import Notice


def _notice(message: str, code: str = "session") -> Notice:
    return Notice(at=1, seq=1, attempt=1, turn=1, level="debug", code=code, message=message)


def test_a_session_and_a_model() -> None:
    """Both are read out of the text."""
    told = announced_in(_notice("session 5f0c0f5e-0000-4000-8000-000000000001, model auto-gemini-3"))
    assert told == ("5f0c0f5e-0000-4000-8000-000000000001", "auto-gemini-3")


@pytest.mark.parametrize(
    "notice",
    [
        _notice("session s1, model pro", code="noise"),
        _notice("session ***, model pro"),
        _notice("session ../s1, model pro"),
        _notice("session s1"),
        _notice(""),
    ],
    ids=["code", "masked", "path", "short", "empty"],
)
def test_what_announces_nothing(notice: Notice) -> None:
    """Another notice, or an id that cannot be one: what is not known stays so."""
    assert announced_in(notice) is None
