"""Events with any text can be written as JSON and read again."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import decode_event, encode_event
from geminids.dialects.dialect import DIALECTS, encode_run
from geminids.events.model import Started, Text
from random_events import recorded

_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_LONE_SURROGATE = "a\udcffb"


def _started(**fields: str) -> Started:
    defaults: dict[str, Any] = {"run_id": "r", "session_id": "s", "model": "m", "cwd": "/repo", "prompt": "x"}
    return Started(**_AT, cli_version=None, transport="headless", pid=1, **{**defaults, **fields})


@pytest.mark.parametrize("field", ["cwd", "model", "prompt"])
def test_a_lone_surrogate_in_a_field(field: str) -> None:
    """A character that UTF-8 cannot encode becomes U+FFFD when the event is made, so that a saved
    event equals the original."""
    event = _started(**{field: _LONE_SURROGATE})
    assert getattr(event, field) == "a\ufffdb"
    assert decode_event(encode_event(event)) == event
    assert getattr(_started(**{field: "é🙂"}), field) == "é🙂"


def test_a_lone_surrogate_in_the_text() -> None:
    """A lone surrogate in a text becomes U+FFFD, and the rest of the text is kept."""
    assert decode_event(encode_event(Text(**_AT, text=f"é{_LONE_SURROGATE}"))) == Text(
        **_AT, text="éa\ufffdb"
    )


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_a_lone_surrogate_in_every_dialect(name: str) -> None:
    """Every dialect can encode events with a lone surrogate."""
    events = [_started(prompt=_LONE_SURROGATE), Text(**_AT, text=_LONE_SURROGATE), *recorded("tools")[3:]]
    assert b"".join(encode_run(name, events)).endswith(b"}\n")
