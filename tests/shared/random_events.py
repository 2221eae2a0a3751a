"""Random events for tests of the dialects: valid runs, and sequences that no real run emits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from geminids import decode_event
from geminids.events.model import (
    AnyEvent,
    Event,
    Finished,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)
from random_values import FIELDS, counts, moments

__all__ = ["RECORDED", "any_events", "recorded", "text_of", "valid_runs"]

RECORDINGS = Path(__file__).parents[1] / "recordings" / "events"
RECORDED = sorted(file.stem for file in RECORDINGS.glob("*.jsonl"))
_OUTPUT_TYPES: tuple[type[Event], ...] = (Thought, Notice, TokensUsed)
_SMALL = {"attempt": st.integers(1, 3), "turn": st.integers(1, 4)}


def _events_of(kind: type[Event], **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{"at": moments, "seq": counts, **_SMALL, **FIELDS[kind], **more})


_texts = _events_of(Text)
# `Text` is listed twice, because most events of a run are texts.
any_events = st.lists(st.one_of(_texts, *map(_events_of, FIELDS)), max_size=25)
"""Any events in any order, for example without `Started`, with two `Finished`, with results that
have no call, and with gaps in the numbers."""


_outputs = st.lists(st.one_of(_texts, *(_events_of(kind) for kind in _OUTPUT_TYPES)), max_size=4)


@st.composite
def valid_runs(draw: st.DrawFn) -> list[AnyEvent]:
    """Return a strategy for runs that follow the rules of the event model: one or two attempts, any
    outcome, with subagents.

    Every `ToolStarted` has one `ToolFinished`, and the numbers have no gaps. `Finished` is the last
    event and has the text of the last attempt.
    """
    drawn: list[Any] = [draw(_events_of(Notice))] if draw(st.booleans()) else []
    last_text = ""
    attempts = draw(st.integers(1, 2))
    for attempt in range(1, attempts + 1):
        events = _attempt(draw)
        drawn += [msgspec.structs.replace(event, attempt=attempt) for event in events]
        last_text = "".join(event.text for event in events if isinstance(event, Text))
    last = draw(
        _events_of(
            Finished, text=st.just(last_text), run_id=st.just(_run_id(drawn)), attempts=st.just(attempts)
        )
    )
    success = last.outcome == "success"
    failure = None if success else last.failure
    answer = last_text[draw(st.integers(0, len(last_text))) :]
    drawn.append(msgspec.structs.replace(last, failure=failure, answer=answer))
    return _numbered(drawn, draw(st.integers(1_794_800_000_000, 1_794_900_000_000)))


def _attempt(draw: st.DrawFn) -> list[Any]:
    events: list[Any] = [draw(_events_of(Started))]
    turn = 1
    count = 0
    for _ in range(draw(st.integers(0, 4))):
        events += _in_turn(
            turn,
            draw(_outputs),
        )
        calls, count = _calls(draw, turn, count, events)
        events += calls
        turn += bool(calls)
    return events


def _calls(draw: st.DrawFn, turn: int, count: int, events: Sequence[Any]) -> tuple[list[Any], int]:
    """Draw the tool calls of one turn, some of them calls of a subagent.

    All calls start, then all end, in another order. Return the events and the new number of
    calls."""
    agents = [event.id for event in events if isinstance(event, ToolStarted) and event.kind == "agent"]
    starts: list[Any] = []
    ends: list[Any] = []
    for started in draw(st.lists(_events_of(ToolStarted), max_size=3)):
        count += 1
        parent = draw(st.sampled_from([None, *agents]))
        own = msgspec.structs.replace(started, id=f"call_{count}", parent=parent)
        end = draw(
            _events_of(
                ToolFinished, **{name: st.just(getattr(own, name)) for name in ("id", "name", "parent")}
            )
        )
        starts.append(own)
        ends.append(msgspec.structs.replace(end, input=end.input if own.input is None else own.input))
        if draw(st.booleans()):
            starts.append(draw(_events_of(PermissionAsked, id=st.just(own.id), tool=st.just(own.name))))
            starts.append(draw(_events_of(PermissionDecided, id=st.just(own.id), tool=st.just(own.name))))
    return _in_turn(turn, [*starts, *draw(st.permutations(ends))]), count


def _in_turn(turn: int, events: Sequence[Any]) -> list[Any]:
    return [msgspec.structs.replace(event, turn=turn) for event in events]


def _run_id(events: Sequence[Any]) -> str:
    return next((event.run_id for event in events if isinstance(event, Started)), "run-0")


def _numbered(events: Sequence[Any], began: int) -> list[AnyEvent]:
    run_id = _run_id(events)
    return [
        msgspec.structs.replace(
            event, seq=seq, at=began + seq, **({"run_id": run_id} if isinstance(event, Started) else {})
        )
        for seq, event in enumerate(events)
    ]


def recorded(name: str) -> list[AnyEvent]:
    """Return the events of a recorded real run."""
    return [decode_event(line) for line in (RECORDINGS / f"{name}.jsonl").read_bytes().splitlines()]


def text_of(events: Sequence[Event]) -> str:
    """Return the text of the last attempt, joined from the `Text` events after the last
    `Started`."""
    text = ""
    for event in events:
        if isinstance(event, Started):
            text = ""
        elif isinstance(event, Text):
            text += event.text
    return text
