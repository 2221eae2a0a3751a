"""The usage of sessions that the real CLI has made."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.sessions import fork
from geminids.sessions.usage import stored_usage

pytestmark = pytest.mark.real


def _where(world: Any) -> dict[str, Any]:
    return {"home": "user", "environ": {"HOME": str(world.home)}, "places": world.places}


@pytest.mark.deep
def test_resumed_by_newer_releases(make_world: Any) -> None:
    """Made by 0.24.0, resumed by 0.41.2 and 0.61.0, and forked: as many requests as the API was sent, and no more."""
    world = make_world("0.24.0")
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    for release in ("0.41.2", "0.61.0"):
        world.gateway.reply(text="pear")
        assert world.ask("which word?", resume=first.session_id, gemini=release).outcome == "success"
    fork(first.session_id, world.cwd, **_where(world))
    found = stored_usage(**_where(world))
    sent = [request for request in world.gateway.requests if request.method in ("stream", "generate")]
    assert sum(len(one.requests) for one in found) == len(sent) == 3
    assert len(found) > 3
    assert {first.session_id} == {one.session for one in found if one.requests}
