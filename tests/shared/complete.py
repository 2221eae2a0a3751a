"""What holds of every run whose journal was followed: its events, and the conversation that they fold into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio

import geminids
from geminids import Finished, Options, Result, Started, Text, Thought, TokensUsed, ToolFinished, ToolStarted

__all__ = ["lawful", "of", "told"]

T = TypeVar("T")


def told(
    prompt: str,
    options: Options,
    *,
    backend: str = "asyncio",
    on_event: Callable[[Any, Any], None] | None = None,
) -> tuple[list[Any], Result]:
    """All events of a run and its result; the laws hold. `on_event` is called with the run and each event."""
    events: list[Any] = []

    async def main() -> Result:
        async with geminids.open_run(prompt, options) as run:
            async for event in run:
                events.append(event)
                if on_event is not None:
                    on_event(run, event)
        return run.result

    result = anyio.run(main, backend=backend)
    lawful(events, result)
    return events, result


def of(events: Sequence[Any], kind: type[T], **fields: Any) -> list[T]:
    """The events of a kind, with these fields."""
    return [
        event
        for event in events
        if isinstance(event, kind) and all(getattr(event, name) == wanted for name, wanted in fields.items())
    ]


def lawful(events: Sequence[Any], result: Result | None = None) -> Finished:
    """No number is missing, nothing comes twice, each tool has one end behind its beginning, the turns hold all."""
    assert [event.seq for event in events] == list(range(len(events)))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert len(of(events, Finished)) == 1
    assert len(of(events, Started)) <= 1
    assert "".join(event.text for event in of(events, Text)) == finished.text
    begun = {event.id: event.seq for event in of(events, ToolStarted)}
    ended = {event.id: event.seq for event in of(events, ToolFinished)}
    assert begun.keys() == ended.keys()
    assert len(begun) == len(of(events, ToolStarted)) == len(of(events, ToolFinished))
    assert all(begun[call] < ended[call] for call in begun)
    if result is not None:
        _folded(events, result)
    return finished


def _folded(events: Sequence[Any], result: Result) -> None:
    """The turns have each thought, text, tool and request of the events once, in the turn that the event names."""
    assert [turn.number for turn in result.turns] == sorted({turn.number for turn in result.turns})
    for kind, name in ((Thought, "thoughts"), (ToolFinished, "tools"), (TokensUsed, "tokens")):
        held = Counter(event.seq for turn in result.turns for event in getattr(turn, name))
        assert held == Counter(event.seq for event in of(events, kind))
        assert all(event.turn == turn.number for turn in result.turns for event in getattr(turn, name))
    assert "".join(turn.text for turn in result.turns) == result.text
    for turn in result.turns:
        ends = {tool.id: at for at, tool in enumerate(turn.tools)}
        inner = [(at, tool.parent) for at, tool in enumerate(turn.tools) if tool.parent is not None]
        assert all(at < ends[parent] for at, parent in inner if parent in ends)
