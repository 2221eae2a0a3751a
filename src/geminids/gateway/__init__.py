"""A local server that looks like the Gemini API to the CLI.

It answers a request from a script, from a cassette (a file with recorded answers), or by forwarding
the request to Google's API.
"""

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
    from geminids.gateway.script.replies import Call, Reply, ReplyUsage, Script
    from geminids.gateway.server.gateway import Gateway
    from geminids.gateway.upstream import Upstream

__all__ = [
    "Call",
    "Gateway",
    "Recording",
    "Replaying",
    "Reply",
    "ReplyUsage",
    "Request",
    "Script",
    "Upstream",
    "load_cassette",
    "load_script",
    "offline_scene",
]

_MODULES = {
    "Call": "script.replies",
    "Gateway": "server.gateway",
    "Recording": "cassette.recording",
    "Replaying": "cassette.replay",
    "Reply": "script.replies",
    "Request": "request",
    "Script": "script.replies",
    "Upstream": "upstream",
    "ReplyUsage": "script.replies",
    "load_cassette": "cassette.cassette",
    "load_script": "script.load",
    "offline_scene": "script.demo",
}


def __getattr__(name: str) -> Any:
    # Import on first use, because pytest imports this package at every start to load the plugin.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
