"""The events of Untether's runners, as values and as JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from geminids.dialects.untether.tools import Kind
from geminids.events.encoding import encode_json
from geminids.sessions.resume_token import ResumeToken

__all__ = [
    "ENGINE",
    "Action",
    "ActionEvent",
    "Changed",
    "CompletedEvent",
    "Detail",
    "Meta",
    "ResumeToken",
    "RunUsage",
    "StartedEvent",
    "TokenUsage",
    "UntetherEvent",
    "encode_untether_event",
]

ENGINE = "gemini"


class Changed(msgspec.Struct, frozen=True):
    """A file that a tool call changes."""

    path: str
    kind: Literal["update"] = "update"


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """Details of an action: for a tool, the call and its result; for a warning, code and line."""

    tool_name: str | UnsetType = UNSET
    input: dict[str, Any] | UnsetType = UNSET
    tool_id: str | UnsetType = UNSET
    changes: tuple[Changed, ...] | UnsetType = UNSET
    output_preview: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    parent_tool_use_id: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    line: str | UnsetType = UNSET


class Action(msgspec.Struct, frozen=True):
    """A tool call or a note."""

    id: str
    kind: Kind
    title: str
    detail: Detail


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """For the footer of a chat message."""

    model: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    permission_mode: str | UnsetType = msgspec.field(default=UNSET, name="permissionMode")


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Input with cached tokens, output without thinking, as in the CLI's own sums."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | UnsetType = UNSET


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, time and cost of the run."""

    usage: TokenUsage
    duration_ms: int
    total_cost_usd: float | UnsetType = UNSET


class StartedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="started"):
    """The session is known."""

    engine: str = ENGINE
    resume: ResumeToken
    title: str | None = ENGINE
    meta: Meta | None = None


class ActionEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="action"):
    """An action starts, changes or ends."""

    engine: str = ENGINE
    action: Action
    phase: Literal["started", "updated", "completed"]
    ok: bool | None = None
    message: str | None = None
    level: Literal["debug", "info", "warning", "error"] | None = None


class CompletedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="completed"):
    """The last event: the run has ended."""

    engine: str = ENGINE
    ok: bool
    answer: str
    resume: ResumeToken | None = None
    error: str | None = None
    usage: RunUsage | None = None


UntetherEvent = StartedEvent | ActionEvent | CompletedEvent


def encode_untether_event(event: UntetherEvent) -> bytes:
    """Encode an event as a line of JSON, without the newline; with all fields, nulls too."""
    try:
        return encode_json(event)
    except RecursionError:
        # Only the input of a tool can be nested this deeply.
        assert isinstance(event, ActionEvent)
        detail = msgspec.structs.replace(event.action.detail, input={})
        action = msgspec.structs.replace(event.action, detail=detail)
        return encode_untether_event(msgspec.structs.replace(event, action=action))
