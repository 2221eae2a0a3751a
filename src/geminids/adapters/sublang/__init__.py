"""SubLang's interface: run Gemini CLI, or any registered agent, and read its agent events.

from geminids.adapters import sublang

async for event in sublang.run("Fix the test.", sublang.AgentOptions(cwd="repo")):
    print(event.type, event.payload)
"""

from __future__ import annotations

from geminids.adapters.sublang.agent import AgentAdapter, AgentInstance
from geminids.adapters.sublang.feed import AbortSignal, Deadline, until_set
from geminids.adapters.sublang.gemini import GeminiAdapter, done_status, is_available, run
from geminids.adapters.sublang.ndjson import NdjsonError, NdjsonLine, NdjsonResult, parse_ndjson
from geminids.adapters.sublang.options import AgentOptions, PermissionPolicy
from geminids.adapters.sublang.parallel import AgentTask, run_parallel
from geminids.adapters.sublang.registry import Registry, get, list, register, run_agent, unregister
from geminids.dialects.agent_events.model import (
    AgentEvent,
    decode_agent_event,
    encode_agent_event,
    is_agent_event,
)

__all__ = [
    "AbortSignal",
    "AgentAdapter",
    "AgentEvent",
    "AgentInstance",
    "AgentOptions",
    "AgentTask",
    "Deadline",
    "GeminiAdapter",
    "NdjsonError",
    "NdjsonLine",
    "NdjsonResult",
    "PermissionPolicy",
    "Registry",
    "decode_agent_event",
    "done_status",
    "encode_agent_event",
    "get",
    "is_agent_event",
    "is_available",
    "list",
    "parse_ndjson",
    "register",
    "run",
    "run_agent",
    "run_parallel",
    "unregister",
    "until_set",
]
