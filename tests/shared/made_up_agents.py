"""Agents of the tests' own: none of them is Gemini, and each misbehaves in one way or in none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel

from geminids.adapters.sublang import AgentEvent, AgentOptions, until_set

__all__ = ["Letters", "Parrot", "done", "event", "ways"]


def event(
    kind: str, payload: Any = None, *, agent: str = "parrot", session: str = "p-1", **more: Any
) -> AgentEvent:
    """An event of another agent: payloads are plain dicts, as they come from JSON."""
    given = {} if payload is None else payload
    return AgentEvent(type=kind, agent=agent, timestamp=1.5, session_id=session, payload=given, **more)


def done(status: str = "success", token: str | None = "t-1") -> AgentEvent:
    known = {"resumeToken": token} if token else {}
    return event("done", {"status": status, "usage": {"toolUses": 0}, "durationMs": 1, **known})


Way = Callable[[str, AgentOptions], AsyncIterator[AgentEvent]]


class Parrot:
    """Says the prompt word by word, or does what its `way` does. `seen` has the options of each run."""

    def __init__(self, way: Way | None = None, agent: str = "parrot") -> None:
        self.agent = agent
        self._way = way or ways.well
        self.seen: list[tuple[str, AgentOptions]] = []
        self.closed = 0

    def is_available(self) -> bool:
        return True

    async def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        self.seen.append((prompt, options))
        try:
            async for one in self._way(prompt, options):
                yield one
        finally:
            self.closed += 1


class _Ways:
    """What an adapter can do, well and badly."""

    async def well(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init", {"model": "m", "cwd": "/", "tools": []})
        for word in prompt.split():
            await anyio.lowlevel.checkpoint()
            yield event("text_delta", {"delta": word})
        yield done()

    async def raises(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        yield event("tool_use", {"toolUseId": "c-1", "toolName": "x", "input": {}})
        raise ValueError("out of seed")

    async def stops_short(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")

    async def goes_on(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield done()
        yield event("text_delta", {"delta": "late"})
        raise ValueError("after the end")

    async def hangs(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield event("init")
        await anyio.sleep_forever()

    async def heeds(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        """Ends by itself when it is aborted, with some last words."""
        yield event("init")
        assert options.abort is not None
        await until_set(options.abort)
        yield event("text_delta", {"delta": "dropped"})
        yield done("interrupted", "t-own")

    async def gives_nonsense(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield {"type": "text"}  # type: ignore[misc]


ways = _Ways()


class Letters:
    """No generator at all: an object with `__anext__` alone, which cannot even be closed."""

    agent = "letters"

    def is_available(self) -> bool:
        return False

    def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        return _Spelled(prompt)


class _Spelled:
    def __init__(self, prompt: str) -> None:
        said = [event("text_delta", {"delta": letter}, agent="letters") for letter in prompt]
        end = AgentEvent(
            type="done", agent="letters", timestamp=2, session_id="l-1", payload={"status": "success"}
        )
        self._events = iter([*said, end])

    def __aiter__(self) -> _Spelled:
        return self

    async def __anext__(self) -> AgentEvent:
        for one in self._events:
            return one
        raise StopAsyncIteration
