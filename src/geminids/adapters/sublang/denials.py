"""Explain denied tool calls with the names of SubLang's options instead of those of geminids."""

from __future__ import annotations

from typing import Any

import msgspec

from geminids.adapters.sublang.options import AgentOptions
from geminids.dialects.agent_events.model import AgentEvent, ToolResult
from geminids.gemini.tools import known_as, tools_with

__all__ = ["NOBODY", "Denials"]

NOBODY = "the adapter has no on_permission callback"
_LEVELS = {"file_write": "file_write", "shell_execute": "shell", "network_access": "network"}


class Denials:
    """Replaces the reason of each tool call that the options of the run deny. The new reason uses
    the names of SubLang's options.

    The reason stays unchanged if the callback `on_permission` or the user's own policies deny the
    call. `can_ask` is True if the adapter has an `on_permission` callback. Without this callback,
    the permission level `ask` also denies calls.
    """

    def __init__(self, requested: AgentOptions, *, can_ask: bool) -> None:
        self._requested = requested
        self._can_ask = can_ask

    def explain(self, event: AgentEvent) -> AgentEvent:
        """If the event reports a call that the options deny, return it with the reason in SubLang's
        names. Return any other event unchanged."""
        payload: Any = event.payload
        if isinstance(payload, ToolResult) and payload.status == "denied":
            if reason := self.reason(payload.tool_name):
                return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, output=reason))
        elif event.type == "geminids:permission_decided":
            by_rule = payload["decision"] == "deny" and payload["by"] == "rule"
            if by_rule and (reason := self.reason(payload["toolName"])):
                return msgspec.structs.replace(event, payload={**payload, "reason": reason})
        return event

    def reason(self, tool: str) -> str | None:
        """If the options deny every call of this tool, return the reason. Otherwise return None."""
        requested, names = self._requested, {*known_as(tool)}
        if names & {*(requested.disallowed_tools or ())}:
            return f"{tool} is in disallowed_tools"
        is_named = requested.allowed_tools is not None and bool(names & {*requested.allowed_tools})
        if requested.allowed_tools is not None and not is_named:
            return f"{tool} is not in allowed_tools"
        policy = requested.permissions
        if policy is None or policy.mode:
            return None
        for field, capability in _LEVELS.items():
            if tool not in tools_with(capability):  # type: ignore[arg-type]
                continue
            level = getattr(policy, field) or "ask"
            if level == "deny":
                return f"permissions.{field} is deny"
            if level == "ask" and not self._can_ask and not is_named:
                return f"permissions.{field} is ask, but {NOBODY}"
        return None
