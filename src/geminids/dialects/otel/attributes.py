"""The attributes and times of a run's spans, by the semantic conventions. Unknown ones are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.events.model import (
    Finished,
    Notice,
    PermissionDecided,
    Started,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)

__all__ = [
    "Floors",
    "finished_attributes",
    "input_attributes",
    "permission_attributes",
    "request_attributes",
    "run_attributes",
    "started_attributes",
    "tool_attributes",
    "tool_end_attributes",
]

Attribute = str | int | float | bool | list[str] | list[int]
Attributes = dict[str, Attribute]
# The conventions' words for the API's reasons.
_FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "LANGUAGE", "IMAGE_SAFETY"),
        "content_filter",
    ),
}


def run_attributes(agent_name: str, provider: str) -> Attributes:
    """Of a run that begins."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.agent.name": agent_name,
    }


def started_attributes(event: Started) -> Attributes:
    return _known(
        {
            "gen_ai.request.model": event.model,
            "gen_ai.conversation.id": event.session_id,
            "gen_ai.agent.version": event.cli_version,
            "geminids.run.id": event.run_id,
            "geminids.lane": event.lane,
        }
    )


def input_attributes(event: Started) -> Attributes:
    """What was asked: content."""
    if event.prompt is None:
        return {}
    return {"gen_ai.input.messages": _messages("user", event.prompt)}


def finished_attributes(event: Finished, *, content: bool) -> Attributes:
    used = event.usage
    cost = event.cost
    told: dict[str, Attribute | None] = {
        "gen_ai.conversation.id": event.session_id,
        "gen_ai.response.finish_reasons": [event.finish_reason.lower()] if event.finish_reason else None,
        "geminids.run.id": event.run_id,
        "geminids.outcome": event.outcome,
        "geminids.exit_code": event.exit_code,
        # The conventions have no name for money.
        "geminids.cost.usd": float(cost.usd) if cost is not None and cost.usd is not None else None,
        "geminids.cost.basis": cost.basis if cost is not None else None,
        "geminids.discarded_requests": list(event.discarded) or None,
    }
    if used is not None and used.unknown:
        told["geminids.usage.unknown_requests"] = used.unknown
    elif used is not None:
        told |= _tokens(used.input, used.cached, used.output, used.thinking, used.tool)
    if content and event.answer:
        reason = {"success": "stop", "max_turns": "length"}.get(event.outcome, "error")
        reason = _FINISH_REASONS.get(event.finish_reason or "", "error") if event.finish_reason else reason
        told["gen_ai.output.messages"] = _messages("assistant", event.answer, finish_reason=reason)
    return _known(told)


def request_attributes(
    event: TokensUsed, model: str | None, provider: str, session: str | None
) -> Attributes:
    """Of one request. `model` is the one that the CLI asked the API for: an alias stands on the run alone."""
    return _known(
        {
            "gen_ai.operation.name": "generate_content",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.response.model": None if event.is_http_error else event.model,
            "gen_ai.conversation.id": session,
            "http.response.status_code": event.status,
            "geminids.role": event.role,
            "geminids.request": event.request,
            "geminids.repeat": event.repeat or None,
            **(
                {}
                if event.is_http_error
                else _tokens(event.input, event.cached, event.output, event.thinking, event.tool)
            ),
            "gen_ai.usage.reasoning.output_tokens": None if event.is_http_error else event.thinking,
        }
    )


def tool_attributes(event: ToolStarted) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": event.name,
        "gen_ai.tool.call.id": event.id,
        "gen_ai.tool.type": "function",
        "geminids.tool.kind": event.kind,
    }


def tool_end_attributes(event: ToolFinished, *, content: bool) -> Attributes:
    told: dict[str, Attribute | None] = {"geminids.tool.exit_code": event.exit_code}
    if content:
        told["gen_ai.tool.call.arguments"] = None if event.input is None else _json(event.input)
        told["gen_ai.tool.call.result"] = event.output
    return _known(told)


def permission_attributes(event: PermissionDecided) -> Attributes:
    return {
        "gen_ai.tool.name": event.tool,
        "geminids.permission.decision": event.decision,
        "geminids.permission.by": event.by,
    }


def _tokens(
    given: int | None, cached: int | None, output: int | None, thinking: int | None, tool: int | None
) -> Mapping[str, int | None]:
    """Cached tokens and those of tool prompts are part of the input, thinking is part of the output.

    Where a part is not known, neither is the whole.
    """
    return {
        "gen_ai.usage.input_tokens": None if given is None or tool is None else given + tool,
        "gen_ai.usage.cache_read.input_tokens": cached,
        "gen_ai.usage.output_tokens": None if output is None or thinking is None else output + thinking,
    }


def _known(told: Mapping[str, Attribute | None]) -> Attributes:
    return {name: value for name, value in told.items() if value is not None}


def _messages(role: str, text: str, **more: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}], **more}])


def _json(value: Any) -> str:
    """As text: spans hold no objects."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "null"  # as deep as JSON can be, and deeper where it stands here


class _Agent(msgspec.Struct):
    """A call of a subagent: its span of time, and when it last had the word."""

    parent: str | None
    began: int
    word: int
    ended: int | None = None


class Floors:
    """Who has had the word since when. The model has it when a turn's last tool has ended, or at the start."""

    def __init__(self) -> None:
        self._began = 0
        self._turns: dict[int, int] = {}
        self._agents: dict[str, _Agent] = {}

    def begin(self, event: Started) -> None:
        """A new attempt: its turns are counted anew."""
        self._began = event.at
        self._turns = {event.turn: event.at}

    def noticed(self, event: Notice) -> None:
        if event.code == "session" and event.turn in self._turns:
            # The CLI has loaded: before this it could not ask.
            self._turns[event.turn] = max(self._turns[event.turn], event.at)

    def agent_began(self, event: ToolStarted) -> None:
        self._agents[event.id] = _Agent(event.parent, event.at, event.at)

    def tool_ended(self, event: ToolFinished) -> None:
        if (agent := self._agents.get(event.id)) is not None:
            agent.ended = event.at
        if event.parent is None:
            self._turns[event.turn + 1] = max(self._turns.get(event.turn + 1, 0), event.at)
            self._turns.pop(event.turn - 2, None)  # nobody asks for it any more
        elif (caller := self._agents.get(event.parent)) is not None:
            caller.word = max(caller.word, event.at)

    def of_request(self, event: TokensUsed) -> tuple[str | None, int]:
        """The call of the subagent that made a request, None for the agent itself; and since when it waited."""
        if event.role == "subagent":
            if (name := self._whose(event.at)) is None:
                return None, _measured(event, event.at)
            agent = self._agents[name]
            since, agent.word = agent.word, max(agent.word, event.at)
            return name, _measured(event, since)
        waits = self._turns.get(event.turn, event.at) if event.role == "main" else event.at
        return None, _measured(event, waits)

    def _whose(self, at: int) -> str | None:
        """The one subagent that was at work then; None where there were several, one not the other's caller."""
        there = {
            name: agent
            for name, agent in self._agents.items()
            if agent.began <= at and (agent.ended is None or at <= agent.ended)
        }
        for agent in list(there.values()):
            if agent.parent is not None:
                there.pop(agent.parent, None)
        return next(iter(there)) if len(there) == 1 else None


def _measured(event: TokensUsed, waits: int) -> int:
    """When a request was sent; `waits` is since when its asker has waited, if nobody has measured it."""
    return min(waits, event.at) if event.duration_ms is None else event.at - event.duration_ms
