"""A Gemini API on 127.0.0.1. A script, a cassette or Google's API answers its requests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.gateway.cassette.cassette import load_cassette
    from geminids.gateway.cassette.recording import Recording
    from geminids.gateway.cassette.replay import Replaying
    from geminids.gateway.request import Request
    from geminids.gateway.script.demo import offline_scene
    from geminids.gateway.script.load import load_script
    from geminids.gateway.script.script import Call, Reply, Script, Usage
    from geminids.gateway.server.gateway import Gateway
    from geminids.gateway.upstream import Upstream

__all__ = [
    "Call",
    "Gateway",
    "Recording",
    "Replaying",
    "Reply",
    "Request",
    "Script",
    "Upstream",
    "Usage",
    "load_cassette",
    "load_script",
    "offline_scene",
]

_HOMES = {
    "Call": "script.script",
    "Gateway": "server.gateway",
    "Recording": "cassette.recording",
    "Replaying": "cassette.replay",
    "Reply": "script.script",
    "Request": "request",
    "Script": "script.script",
    "Upstream": "upstream",
    "Usage": "script.script",
    "load_cassette": "cassette.cassette",
    "load_script": "script.load",
    "offline_scene": "script.demo",
}


def __getattr__(name: str) -> Any:
    # Import late: pytest imports this package at every start, because it contains a plugin.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
