"""SubLang's adapter interface: options and a permission policy in, one stream of agent events out."""

from __future__ import annotations

from geminids.adapters.sublang.feed import AbortSignal, Deadline, until_set
from geminids.adapters.sublang.gemini import GeminiAdapter
from geminids.adapters.sublang.options import AgentOptions, PermissionPolicy
from geminids.adapters.sublang.run import AgentAdapter, AgentInstance
from geminids.dialects.agent_events.model import AgentEvent

__all__ = [
    "AbortSignal",
    "AgentAdapter",
    "AgentEvent",
    "AgentInstance",
    "AgentOptions",
    "Deadline",
    "GeminiAdapter",
    "PermissionPolicy",
    "until_set",
]
