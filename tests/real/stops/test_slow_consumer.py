"""A slow consumer of events loses nothing, although the CLI exits with output still queued."""

from __future__ import annotations

import random
import time
from typing import Any

import anyio
import pytest

import geminids
from geminids import Finished, Text

pytestmark = pytest.mark.real


def _pieces(count: int) -> list[str]:
    """Return pieces of text, together longer than the 1 MB that a pipe holds.

    No two are alike, because the CLI stops a model that repeats itself."""
    generator = random.Random(7)
    return [generator.randbytes(8_000).hex() + "\n" for _ in range(count)]


def test_a_blocked_event_loop_loses_nothing(world: Any) -> None:
    """If the host blocks its event loop, the CLI waits with its output, and the answer is
    complete."""
    pieces = _pieces(200)
    world.gateway.reply(text=pieces)

    async def consume() -> Any:
        async with geminids.open_run("tell me all", world.options()) as run:
            async for event in run:
                if isinstance(event, Text):
                    # Long enough for the CLI to receive the whole answer and, without blocking
                    # writes, to exit.
                    time.sleep(3)  # noqa: ASYNC251
                    break
            async for _ in run:
                pass
        return run.result

    result = anyio.run(consume)
    assert result.outcome == "success", result.reason
    assert result.text == "".join(pieces)


@pytest.mark.parametrize("pieces", [200, pytest.param(500, marks=pytest.mark.deep)])
def test_a_consumer_that_sleeps_loses_nothing(world: Any, pieces: int) -> None:
    """If the consumer sleeps between two events, geminids keeps reading the CLI's output. The text
    events and the result are complete."""
    sent = _pieces(pieces)
    world.gateway.reply(text=sent)

    async def consume() -> tuple[int, Any]:
        length, slept = 0, False
        async with geminids.open_run("tell me all", world.options()) as run:
            async for event in run:
                if isinstance(event, Text):
                    length += len(event.text)
                    if not slept:
                        slept = True
                        await anyio.sleep(4)
                last = event
        return length, last

    length, last = anyio.run(consume)
    assert isinstance(last, Finished)
    assert last.outcome == "success", last.reason
    assert length == len(last.text) == len("".join(sent))
