"""The options of a run, and their validation."""

from __future__ import annotations

from geminids.options.model import Approval, Effort, Leftovers, McpServer, Options
from geminids.options.permissions import CAPABILITIES, Capability, Permissions, Power
from geminids.options.validate import make_options

__all__ = [
    "CAPABILITIES",
    "Approval",
    "Capability",
    "Effort",
    "Leftovers",
    "McpServer",
    "Options",
    "Permissions",
    "Power",
    "make_options",
]
