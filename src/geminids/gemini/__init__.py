"""Gemini CLI on this machine: find it and its Node, install it, know what each release can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geminids.gemini.features import Release, release_of
from geminids.gemini.locate.cli import Gemini
from geminids.gemini.locate.find import Availability, find, installed, is_available
from geminids.gemini.locate.node import Node, find_node

if TYPE_CHECKING:
    from geminids.gemini.models import Model, models_of

__all__ = [
    "Availability",
    "Gemini",
    "Model",
    "Node",
    "Release",
    "find",
    "find_node",
    "installed",
    "is_available",
    "models_of",
    "release_of",
]

# Imported on first use: a run only needs to find the CLI. Installing is in
# `geminids.gemini.install`.
_LATE = {
    "Model": "models",
    "models_of": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
