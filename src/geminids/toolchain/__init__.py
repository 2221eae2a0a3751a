"""Which gemini, on which Node: find, install, verify, what a release can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geminids.toolchain.find import Availability, find, installed, is_available
from geminids.toolchain.gemini import Gemini
from geminids.toolchain.node import Node, find_node
from geminids.toolchain.releases import Release, release_of

if TYPE_CHECKING:
    from geminids.toolchain.models import Model, models_of

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

# A run needs only to find; what installs is in `geminids.toolchain.install`.
_LATE = {
    "Model": "models",
    "models_of": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
