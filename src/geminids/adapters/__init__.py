"""Run agents through the interfaces of other systems. An agent can be run by its name, and several
agents can run in parallel.

from geminids import adapters

async for event in adapters.run_agent("gemini", "Fix the test."):
    print(event.type)

Each of the modules `leadmetrics`, `sublang`, `agent_cli_sdk`, `cakit` and `untether` provides the
interface of the system with the same name. A module is only imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.adapters.sublang.parallel import AgentTask, run_parallel
    from geminids.adapters.sublang.registry import GROUP, Registry, get, list, register, run_agent, unregister

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

_SYSTEMS = ("agent_cli_sdk", "cakit", "leadmetrics", "sublang", "untether")
_PARALLEL_NAMES = ("AgentTask", "run_parallel")


def __getattr__(name: str) -> Any:
    if name in _SYSTEMS:
        return import_module(f"geminids.adapters.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'geminids.adapters' has no attribute {name!r}")
    module = "parallel" if name in _PARALLEL_NAMES else "registry"
    return getattr(import_module(f"geminids.adapters.sublang.{module}"), name)
