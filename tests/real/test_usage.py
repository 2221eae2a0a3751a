"""The usage of sessions that the real CLI has made."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.gemini.install.cli import install
from geminids.sessions import find, fork
from geminids.sessions.usage import stored_usage
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real


def _where(world: Any) -> dict[str, Any]:
    return {"home": "user", "environ": {"HOME": str(world.home)}, "places": world.places}


@pytest.mark.deep
def test_resumed_by_newer_releases(make_world: Any, installs: Any) -> None:
    """Made by a plain 0.24.0, resumed by 0.54.4 and 0.61.0, and forked: each request counts once."""
    world = make_world("0.24.0")
    world.gateway.reply(text="the word is pear")
    assert plain_gemini(world, "--prompt=remember the word").returncode == 0
    (first,) = find(world.cwd, **_where(world))
    for release in ("0.54.4", "0.61.0"):
        install(release, places=installs)
        world.gateway.reply(text="pear")
        assert world.ask("which word?", resume=first.id, gemini=release).outcome == "success"
    fork(first.id, world.cwd, **_where(world))
    found = stored_usage(**_where(world))
    sent = [request for request in world.gateway.requests if request.method in ("stream", "generate")]
    assert sum(len(one.requests) for one in found) == len(sent) == 3
    assert len(found) > 3
    assert {first.id} == {one.session for one in found if one.requests}
