"""A consumer that is slow, and the real CLI, which does not wait for its reader when it exits."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

import geminids
from geminids import Finished, Text

pytestmark = pytest.mark.real


# The CLI calls process.exit with its stdout unflushed: what the pipe does not hold then is lost for good.
# No two alike: the CLI stops a model that repeats itself.
def _pieces(count: int) -> list[str]:
    dice = random.Random(7)
    return [dice.randbytes(8_000).hex() + "\n" for _ in range(count)]


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
