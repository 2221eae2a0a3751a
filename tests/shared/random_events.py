"""Random runs for the laws of the dialects: lawful ones, and sequences that no run would give."""

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

__all__ = ["RECORDED", "any_events", "lawful_runs", "recorded", "text_of"]

RECORDINGS = Path(__file__).parents[1] / "recordings" / "events"
RECORDED = sorted(file.stem for file in RECORDINGS.glob("*.jsonl"))
_SAID: tuple[type[Event], ...] = (Thought, Notice, TokensUsed)
_SMALL = {"attempt": st.integers(1, 3), "turn": st.integers(1, 4)}


def _events_of(kind: type[Event], **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{"at": moments, "seq": counts, **_SMALL, **FIELDS[kind], **more})


_texts = _events_of(Text)
# Twice, since most of what a run says is text.
any_events = st.lists(st.one_of(_texts, *map(_events_of, FIELDS)), max_size=25)
"""Any events in any order: none first, two `Finished`, results of no call, numbers with holes."""


_said = st.lists(st.one_of(_texts, *(_events_of(kind) for kind in _SAID)), max_size=4)


@st.composite
def lawful_runs(draw: st.DrawFn) -> list[AnyEvent]:
    """A run as the laws of the event model allow it: of one attempt or two, cut off or not, with subagents.

    Every `ToolStarted` has one `ToolFinished`, numbers have no gaps, `Finished` is the last and its text the sum.
    """
    drawn: list[Any] = [draw(_events_of(Notice))] if draw(st.booleans()) else []
    kept = ""
    attempts = draw(st.integers(1, 2))
    for attempt in range(1, attempts + 1):
        said = _attempt(draw)
        drawn += [msgspec.structs.replace(event, attempt=attempt) for event in said]
        kept = "".join(event.text for event in said if isinstance(event, Text))
    last = draw(
        _events_of(Finished, text=st.just(kept), run_id=st.just(_run_id(drawn)), attempts=st.just(attempts))
    )
    success = last.outcome == "success"
    failure = None if success else last.failure
    answer = kept[draw(st.integers(0, len(kept))) :]
    drawn.append(msgspec.structs.replace(last, failure=failure, answer=answer))
    return _numbered(drawn, draw(st.integers(1_794_800_000_000, 1_794_900_000_000)))


def _attempt(draw: st.DrawFn) -> list[Any]:
    said: list[Any] = [draw(_events_of(Started))]
    turn = 1
    count = 0
    for _ in range(draw(st.integers(0, 4))):
        said += _in_turn(
            turn,
            draw(_said),
        )
        calls, count = _calls(draw, turn, count, said)
        said += calls
        turn += bool(calls)
    return said


def _calls(draw: st.DrawFn, turn: int, count: int, said: Sequence[Any]) -> tuple[list[Any], int]:
    """Calls of one turn: all of them begin, then all of them end, in another order; some are of a subagent."""
    agents = [event.id for event in said if isinstance(event, ToolStarted) and event.kind == "agent"]
    begun: list[Any] = []
    ended: list[Any] = []
    for started in draw(st.lists(_events_of(ToolStarted), max_size=3)):
        count += 1
        parent = draw(st.sampled_from([None, *agents]))
        own = msgspec.structs.replace(started, id=f"call_{count}", parent=parent)
        end = draw(
            _events_of(
                ToolFinished, **{name: st.just(getattr(own, name)) for name in ("id", "name", "parent")}
            )
        )
        begun.append(own)
        ended.append(msgspec.structs.replace(end, input=end.input if own.input is None else own.input))
        if draw(st.booleans()):
            begun.append(draw(_events_of(PermissionAsked, id=st.just(own.id), tool=st.just(own.name))))
            begun.append(draw(_events_of(PermissionDecided, id=st.just(own.id), tool=st.just(own.name))))
    return _in_turn(turn, [*begun, *draw(st.permutations(ended))]), count


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
    """The events of a real run, by the name of its recording."""
    return [decode_event(line) for line in (RECORDINGS / f"{name}.jsonl").read_bytes().splitlines()]


def text_of(events: Sequence[Event]) -> str:
    """What the agent said in its last attempt, as a reader of the events would join it."""
    said = ""
    for event in events:
        if isinstance(event, Started):
            said = ""
        elif isinstance(event, Text):
            said += event.text
    return said
