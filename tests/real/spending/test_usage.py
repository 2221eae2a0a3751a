"""`stored_usage` counts the requests in session files of the real CLI."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.gemini.install.cli import install
from geminids.sessions import find, fork
from geminids.sessions.usage import stored_usage
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real


def _lookup(world: Any) -> dict[str, Any]:
    return {"home": "user", "environ": {"HOME": str(world.home)}, "places": world.places}


@pytest.mark.deep
def test_resumed_by_newer_releases(make_world: Any, installs: Any) -> None:
    """Each request counts once in a session that CLI 0.24.0 created, two newer releases resumed and
    geminids forked."""
    world = make_world("0.24.0")
    world.gateway.reply(text="the word is pear")
    assert plain_gemini(world, "--prompt=remember the word").returncode == 0
    (first,) = find(world.cwd, **_lookup(world))
    for release in ("0.54.4", "0.61.0"):
        install(release, places=installs)
        world.gateway.reply(text="pear")
        assert world.ask("which word?", resume=first.id, gemini=release).outcome == "success"
    fork(first.id, world.cwd, **_lookup(world))
    usages = stored_usage(**_lookup(world))
    sent = [request for request in world.gateway.requests if request.method in ("stream", "generate")]
    assert sum(len(usage.requests) for usage in usages) == len(sent) == 3
    assert len(usages) > 3
    assert {first.id} == {usage.session for usage in usages if usage.requests}
