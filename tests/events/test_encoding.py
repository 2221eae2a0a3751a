"""JSON of events: whatever text is in them, it can be written, and read again."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import decode_event, encode_event
from geminids.dialects.dialect import DIALECTS, encode_run
from geminids.events.model import Started, Text
from random_events import recorded

_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_HALF = "a\udcffb"


def _started(**fields: str) -> Started:
    given: dict[str, Any] = {"run_id": "r", "session_id": "s", "model": "m", "cwd": "/repo", "prompt": "x"}
    return Started(**_AT, cli_version=None, lane="headless", pid=1, **{**given, **fields})


@pytest.mark.parametrize("field", ["cwd", "model", "prompt"])
def test_words_of_a_command_line_need_not_be_utf_8(field: str) -> None:
    """What cannot be written is one character, and the event is the same before and after it was saved."""
    event = _started(**{field: _HALF})
    assert getattr(event, field) == "a\ufffdb"
    assert decode_event(encode_event(event)) == event
    assert getattr(_started(**{field: "é🙂"}), field) == "é🙂"


def test_half_a_character_anywhere() -> None:
    """It costs that character, and not the line."""
    assert decode_event(encode_event(Text(**_AT, text=f"é{_HALF}"))) == Text(**_AT, text="éa\ufffdb")


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_half_a_character_in_every_dialect(name: str) -> None:
    """Nothing that is heard raises."""
    events = [_started(prompt=_HALF), Text(**_AT, text=_HALF), *recorded("tools")[3:]]
    assert b"".join(encode_run(name, events)).endswith(b"}\n")
