"""Find and install Gemini CLI and the Node that runs it, and describe each supported release."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geminids.gemini.features import Release, release_of
from geminids.gemini.locate.find import Availability, find, installed, is_available
from geminids.gemini.locate.identify import Gemini
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

# Names from modules that are imported on first use, because a run does not need them. The functions
# that install the CLI are in `geminids.gemini.install`.
_LATE = {
    "Model": "models",
    "models_of": "models",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
