"""Run a prompt and check the rules for the events and turns of every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio

import geminids
from geminids import Finished, Options, Result, Started, Text, Thought, TokensUsed, ToolFinished, ToolStarted

__all__ = ["check_events", "run_and_collect", "select_events"]

T = TypeVar("T")


def run_and_collect(
    prompt: str,
    options: Options,
    *,
    backend: str = "asyncio",
    on_event: Callable[[Any, Any], None] | None = None,
) -> tuple[list[Any], Result]:
    """Run a prompt, check its events, and return them with the result.

    `on_event` is called with the run and each event."""
    events: list[Any] = []

    async def main() -> Result:
        async with geminids.open_run(prompt, options) as run:
            async for event in run:
                events.append(event)
                if on_event is not None:
                    on_event(run, event)
        return run.result

    result = anyio.run(main, backend=backend)
    check_events(events, result)
    return events, result


def select_events(events: Sequence[Any], kind: type[T], **fields: Any) -> list[T]:
    """Return the events of a type whose fields have these values."""
    return [
        event
        for event in events
        if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
    ]


def check_events(events: Sequence[Any], result: Result | None = None) -> Finished:
    """Check the rules for the events of every run, and return the `Finished` event.

    The numbers have no gaps. There is one `Finished`, at the end, whose text is the sum of all
    texts. Each tool call ends once, after its start. With `result`, the turns contain all
    events."""
    assert [event.seq for event in events] == list(range(len(events)))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert len(select_events(events, Finished)) == 1
    assert len(select_events(events, Started)) <= 1
    assert "".join(event.text for event in select_events(events, Text)) == finished.text
    started = {event.id: event.seq for event in select_events(events, ToolStarted)}
    ended = {event.id: event.seq for event in select_events(events, ToolFinished)}
    assert started.keys() == ended.keys()
    assert len(started) == len(select_events(events, ToolStarted)) == len(select_events(events, ToolFinished))
    assert all(started[call] < ended[call] for call in started)
    if result is not None:
        _check_turns(events, result)
    return finished


def _check_turns(events: Sequence[Any], result: Result) -> None:
    """Check that each thought, text, tool call and token count is in exactly one turn of the
    result: the turn that its event names."""
    assert [turn.number for turn in result.turns] == sorted({turn.number for turn in result.turns})
    for kind, name in ((Thought, "thoughts"), (ToolFinished, "tools"), (TokensUsed, "tokens")):
        in_turns = Counter(event.seq for turn in result.turns for event in getattr(turn, name))
        assert in_turns == Counter(event.seq for event in select_events(events, kind))
        assert all(event.turn == turn.number for turn in result.turns for event in getattr(turn, name))
    assert "".join(turn.text for turn in result.turns) == result.text
    for turn in result.turns:
        ends = {tool.id: at for at, tool in enumerate(turn.tools)}
        inner = [(at, tool.parent) for at, tool in enumerate(turn.tools) if tool.parent is not None]
        assert all(at < ends[parent] for at, parent in inner if parent in ends)
