"""Run agents through the interfaces of other systems: one module per system, a registry, parallel runs.

from geminids import adapters

async for event in adapters.run_agent("gemini", "Fix the test."):
    print(event.type)

`leadmetrics`, `sublang` and `agent_cli_sdk` contain the names of their systems. Names are loaded on first use,
because `execute` starts the CLI before it imports an event loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.adapters.parallel import AgentTask, run_parallel
    from geminids.adapters.registry import GROUP, Registry, get, list, register, run_agent, unregister

__all__ = [
    "GROUP",
    "AgentTask",
    "Registry",
    "get",
    "list",
    "register",
    "run_agent",
    "run_parallel",
    "unregister",
]

_SYSTEMS = ("agent_cli_sdk", "leadmetrics", "sublang")
_PARALLEL_NAMES = ("AgentTask", "run_parallel")


def __getattr__(name: str) -> Any:
    if name in _SYSTEMS:
        return import_module(f"geminids.adapters.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'geminids.adapters' has no attribute {name!r}")
    module = "parallel" if name in _PARALLEL_NAMES else "registry"
    return getattr(import_module(f"geminids.adapters.{module}"), name)
