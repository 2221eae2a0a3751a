"""A consumer that is slow, and the real CLI, which calls process.exit with output still queued."""

from __future__ import annotations

import random
import time
from typing import Any

import anyio
import pytest

import geminids
from geminids import Finished, Text

pytestmark = pytest.mark.real


# More than a pipe holds (1 MB). No two alike: the CLI stops a model that repeats itself.
def _pieces(count: int) -> list[str]:
    dice = random.Random(7)
    return [dice.randbytes(8_000).hex() + "\n" for _ in range(count)]


def test_a_blocked_event_loop_loses_nothing(world: Any) -> None:
    """While the host's own code blocks the event loop, nobody reads: the CLI waits, and the answer is complete."""
    pieces = _pieces(200)
    world.gateway.reply(text=pieces)

    async def consume() -> Any:
        async with geminids.open_run("tell me all", world.options()) as run:
            async for event in run:
                if isinstance(event, Text):
                    # Long enough for the CLI to receive the whole answer and, without blocking writes, to exit.
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
    """We read on while it sleeps: all text and the result are there afterwards, and the run is a success."""
    said = _pieces(pieces)
    world.gateway.reply(text=said)

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
    assert length == len(last.text) == len("".join(said))
