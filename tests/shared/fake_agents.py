"""Fake agents for tests of the adapters: one behaves well, each other breaks one rule."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel

from geminids.adapters.sublang import AgentEvent, AgentOptions, until_set

__all__ = ["FakeAgent", "IteratorAgent", "behaviours", "done", "event"]


def event(
    kind: str, payload: Any = None, *, agent: str = "parrot", session: str = "p-1", **more: Any
) -> AgentEvent:
    """Return an event of a fake agent. Its payload is a plain dict, as decoded from JSON."""
    payload = {} if payload is None else payload
    return AgentEvent(type=kind, agent=agent, timestamp=1.5, session_id=session, payload=payload, **more)


def done(status: str = "success", token: str | None = "t-1") -> AgentEvent:
    resume = {"resumeToken": token} if token else {}
    return event("done", {"status": status, "usage": {"toolUses": 0}, "durationMs": 1, **resume})


Behaviour = Callable[[str, AgentOptions], AsyncIterator[AgentEvent]]


class FakeAgent:
    """An agent that repeats its prompt word by word, or follows the given behaviour.

    `seen` has the prompt and options of each run; `closed` counts the runs that have ended."""

    def __init__(self, behaviour: Behaviour | None = None, agent: str = "parrot") -> None:
        self.agent = agent
        self._behaviour = behaviour or behaviours.well
        self.seen: list[tuple[str, AgentOptions]] = []
        self.closed = 0

    def is_available(self) -> bool:
        return True

    async def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        self.seen.append((prompt, options))
        try:
            async for emitted in self._behaviour(prompt, options):
                yield emitted
        finally:
            self.closed += 1


class _Behaviours:
    """The behaviours of a fake agent, correct and wrong, as async generators."""

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
        """End with the status `interrupted` when the run is aborted, after one more text."""
        yield event("init")
        assert options.abort_signal is not None
        await until_set(options.abort_signal)
        yield event("text_delta", {"delta": "dropped"})
        yield done("interrupted", "t-own")

    async def gives_nonsense(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        yield {"type": "text"}  # type: ignore[misc]


behaviours = _Behaviours()


class IteratorAgent:
    """An agent whose `run` returns a plain async iterator: it has no `aclose()`."""

    agent = "letters"

    def is_available(self) -> bool:
        return False

    def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        return _LetterIterator(prompt)


class _LetterIterator:
    def __init__(self, prompt: str) -> None:
        deltas = [event("text_delta", {"delta": letter}, agent="letters") for letter in prompt]
        end = AgentEvent(
            type="done", agent="letters", timestamp=2, session_id="l-1", payload={"status": "success"}
        )
        self._events = iter([*deltas, end])

    def __aiter__(self) -> _LetterIterator:
        return self

    async def __anext__(self) -> AgentEvent:
        for next_event in self._events:
            return next_event
        raise StopAsyncIteration
