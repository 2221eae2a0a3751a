"""Requests that the CLI has written down, as events."""

from __future__ import annotations

import pytest

from geminids.events.from_telemetry import tokens_used
from geminids.events.ledger import Ledger
from geminids.wire.telemetry import ApiResponse


def test_one_event_a_request() -> None:
    """In their order, numbered on, with what each of them tells; what it does not tell is None."""
    ledger = Ledger()
    ledger.seq, ledger.turn = 5, 2
    told = ApiResponse(
        at="2026-11-16T03:33:20.123Z",
        model="gemini-3.8-flash",
        role="main",
        input_token_count=100,
        cached_content_token_count=40,
        output_token_count=10,
        thoughts_token_count=3,
        tool_token_count=0,
    )
    first, second = tokens_used([told, ApiResponse(at="soon")], ledger)
    assert (first.seq, second.seq, ledger.seq) == (5, 6, 7)
    assert (first.at, first.turn, first.model) == (1_794_800_000_123, 2, "gemini-3.8-flash")
    assert (first.input, first.cached, first.output, first.thinking, first.tool) == (100, 40, 10, 3, 0)
    assert (second.at, second.model, second.input, second.thinking) == (0, None, None, None)


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("main", "main"),
        (None, "main"),
        ("subagent", "subagent"),
        ("utility_router", "utility"),
        ("new", "main"),
    ],
)
def test_who_asked(said: str | None, role: str) -> None:
    """The CLI's errands are of one role; releases without roles have the agent's alone."""
    (event,) = tokens_used([ApiResponse(role=said)], Ledger())
    assert event.role == role
