"""Convert conversations and runs to the formats of other systems."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DIALECTS = (
    "agent_events",
    "atif",
    "claude",
    "leadmetrics",
    "otel",
    "record",
    "untether",
)


def __getattr__(name: str) -> Any:
    if name not in _DIALECTS:
        raise AttributeError(f"module 'geminids.dialects' has no attribute {name!r}")
    return import_module(f"geminids.dialects.{name}")
