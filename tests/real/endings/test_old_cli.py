"""geminids refuses a real release before 0.54, which still works as the user's own `gemini`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from plain_gemini import plain_gemini

pytestmark = [pytest.mark.real, pytest.mark.deep]


def test_a_real_old_release_is_refused(make_world: Any) -> None:
    """A run and a chat refuse a release before 0.54 and send no request. The user's own `gemini` of
    that release still works."""
    world = make_world("0.41.2")
    failure = world.ask().failure
    assert failure.kind == "cli_unsupported"
    assert "Gemini CLI 0.41.2 is too old" in failure.message
    assert "geminids install" in failure.message

    async def ask_in_chat() -> Any:
        async with geminids.Pool(world.options()) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    assert anyio.run(ask_in_chat).failure == failure
    assert world.gateway.requests == []
    world.gateway.reply(text="fine")
    assert plain_gemini(world, "--prompt=hello").returncode == 0
