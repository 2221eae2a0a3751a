"""A real release before 0.54 is refused, and stays usable as the user's own."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from plain_gemini import plain_gemini

pytestmark = [pytest.mark.real, pytest.mark.deep]


def test_a_real_old_release_is_refused(make_world: Any) -> None:
    """By a run and by a chat; no request is made. The user's own `gemini` of that release works as ever."""
    world = make_world("0.41.2")
    failure = world.ask().failure
    assert failure.kind == "cli_unsupported"
    assert "Gemini CLI 0.41.2 is too old" in failure.message
    assert "geminids install" in failure.message

    async def talk() -> Any:
        async with geminids.Pool(world.options()) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    assert anyio.run(talk).failure == failure
    assert world.gateway.requests == []
    world.gateway.reply(text="fine")
    assert plain_gemini(world, "--prompt=hello").returncode == 0
