"""Compute the attributes and the start times of the spans of a run.

The attributes follow the semantic conventions of OpenTelemetry. Attributes with unknown values are
omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.events.cost import with_reported_totals
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
    "RequestTimes",
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
# Maps the finish reasons of the API to the names in the conventions.
_FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "LANGUAGE", "IMAGE_SAFETY"),
        "content_filter",
    ),
}


def run_attributes(agent_name: str, provider: str) -> Attributes:
    """Return the attributes for the span of a run that are known before the first event."""
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
            "geminids.transport": event.transport,
        }
    )


def input_attributes(event: Started) -> Attributes:
    """Return the prompt of the run as an attribute; an empty dict if the prompt is not known.

    Call this function only if the spans may contain prompts (`content=True`).
    """
    if event.prompt is None:
        return {}
    return {"gen_ai.input.messages": _messages("user", event.prompt)}


def finished_attributes(event: Finished, *, content: bool) -> Attributes:
    used = event.usage
    cost = event.cost
    attributes: dict[str, Attribute | None] = {
        "gen_ai.conversation.id": event.session_id,
        "gen_ai.response.finish_reasons": [event.finish_reason.lower()] if event.finish_reason else None,
        "geminids.run.id": event.run_id,
        "geminids.outcome": event.outcome,
        "geminids.exit_code": event.exit_code,
        # The conventions have no attribute for the cost.
        "geminids.cost.usd": float(cost.usd) if cost is not None and cost.usd is not None else None,
        "geminids.cost.basis": cost.basis if cost is not None else None,
        "geminids.discarded_requests": list(event.discarded) or None,
    }
    if used is not None and used.unknown:
        attributes["geminids.usage.unknown_requests"] = used.unknown
    elif used is not None:
        used = with_reported_totals(used)
        attributes |= _tokens(used.input, used.cached, used.output, used.thinking, used.tool)
    if content and event.answer:
        reason = {"success": "stop", "max_turns": "length"}.get(event.outcome, "error")
        reason = _FINISH_REASONS.get(event.finish_reason or "", "error") if event.finish_reason else reason
        attributes["gen_ai.output.messages"] = _messages("assistant", event.answer, finish_reason=reason)
    return _known(attributes)


def request_attributes(
    event: TokensUsed, model: str | None, provider: str, session: str | None
) -> Attributes:
    """Return the attributes of the span of one model request.

    `model` is the model that the CLI requested, and `session` is the id of the session. Both are
    None if unknown. `provider` is the value of `gen_ai.provider.name`.
    """
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
    attributes: dict[str, Attribute | None] = {"geminids.tool.exit_code": event.exit_code}
    if content:
        attributes["gen_ai.tool.call.arguments"] = None if event.input is None else _json(event.input)
        attributes["gen_ai.tool.call.result"] = event.output
    return _known(attributes)


def permission_attributes(event: PermissionDecided) -> Attributes:
    return {
        "gen_ai.tool.name": event.tool,
        "geminids.permission.decision": event.decision,
        "geminids.permission.by": event.by,
    }


def _tokens(
    prompt: int | None, cached: int | None, output: int | None, thinking: int | None, tool: int | None
) -> Mapping[str, int | None]:
    """Return the attributes with token counts.

    Input tokens include cached tokens, and the tokens that the API adds for its own tools, such as
    Google Search (`tool`). Output tokens include thinking. If a count is unknown, each attribute
    that is computed from it is None.
    """
    return {
        "gen_ai.usage.input_tokens": None if prompt is None or tool is None else prompt + tool,
        "gen_ai.usage.cache_read.input_tokens": cached,
        "gen_ai.usage.output_tokens": None if output is None or thinking is None else output + thinking,
    }


def _known(attributes: Mapping[str, Attribute | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _messages(role: str, text: str, **more: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}], **more}])


def _json(value: Any) -> str:
    """Encode a value as JSON text, because an attribute of a span cannot be an object. Return the
    text `null` if the value is nested too deeply for JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "null"


class _Agent(msgspec.Struct):
    """The times of a subagent, in Unix milliseconds.

    `began` and `ended` are the times of the tool call that started this subagent. `ready` is the
    earliest time at which this subagent can send its next request.

    `parent` is None if the main agent started this subagent. If another subagent did, `parent` is
    the id of the tool call that started that other subagent.
    """

    parent: str | None
    began: int
    ready: int
    ended: int | None = None


class RequestTimes:
    """Computes when each model request was sent, from the duration of the request.

    If the duration is unknown, the time is estimated. A request is sent at about the time when the
    last tool call of the previous turn ended. In the first turn, it is sent when the attempt has
    started and the CLI has loaded.
    """

    def __init__(self) -> None:
        self._began = 0
        self._turns: dict[int, int] = {}
        self._agents: dict[str, _Agent] = {}

    def begin(self, event: Started) -> None:
        """Begin a new attempt of the run, and forget the turns of the previous attempt."""
        self._began = event.at
        self._turns = {event.turn: event.at}

    def noticed(self, event: Notice) -> None:
        if event.code == "session" and event.turn in self._turns:
            # This notice means that the CLI has just loaded. It sends no request before that.
            self._turns[event.turn] = max(self._turns[event.turn], event.at)

    def agent_began(self, event: ToolStarted) -> None:
        self._agents[event.id] = _Agent(event.parent, event.at, event.at)

    def tool_ended(self, event: ToolFinished) -> None:
        if (agent := self._agents.get(event.id)) is not None:
            agent.ended = event.at
        if event.parent is None:
            self._turns[event.turn + 1] = max(self._turns.get(event.turn + 1, 0), event.at)
            self._turns.pop(event.turn - 2, None)  # no later request needs the time of this turn
        elif (caller := self._agents.get(event.parent)) is not None:
            caller.ready = max(caller.ready, event.at)

    def of_request(self, event: TokensUsed) -> tuple[str | None, int]:
        """Return two values: which subagent sent a request, and when the request was sent, in Unix
        milliseconds.

        The first value is the id of the tool call that started the subagent. It is None if no
        subagent sent the request, or if it is not known which subagent did.
        """
        if event.role == "subagent":
            if (name := self._running_agent(event.at)) is None:
                return None, _start_of(event, event.at)
            agent = self._agents[name]
            since, agent.ready = agent.ready, max(agent.ready, event.at)
            return name, _start_of(event, since)
        start = self._turns.get(event.turn, event.at) if event.role == "main" else event.at
        return None, _start_of(event, start)

    def _running_agent(self, at: int) -> str | None:
        """Return the innermost subagent that was running at the time `at`, as the id of the tool
        call that started it.

        Return None if no subagent was running, or if several were running in parallel.
        """
        running = {
            name: agent
            for name, agent in self._agents.items()
            if agent.began <= at and (agent.ended is None or at <= agent.ended)
        }
        for agent in list(running.values()):
            if agent.parent is not None:
                running.pop(agent.parent, None)
        return next(iter(running)) if len(running) == 1 else None


def _start_of(event: TokensUsed, estimate: int) -> int:
    """Return when a request was sent, in Unix milliseconds.

    The time is computed from the duration of the request. If the duration is unknown, return
    `estimate` or the time of the event, whichever is earlier.
    """
    return min(estimate, event.at) if event.duration_ms is None else event.at - event.duration_ms
