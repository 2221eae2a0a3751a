"""Untether's events as structs, and their encoding as JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geminids.dialects.untether.tools import Kind
from geminids.events.encoding import encode_json
from geminids.sessions.resume_token import ResumeToken

__all__ = [
    "ENGINE",
    "Action",
    "ActionEvent",
    "CompletedEvent",
    "ResumeToken",
    "StartedEvent",
    "UntetherEvent",
    "encode_untether_event",
]

ENGINE = "gemini"


class Action(msgspec.Struct, frozen=True):
    """A tool call or a warning.

    For a tool call, `detail` contains `tool_name`, `input` and `tool_id`. If the tool changes
    files, `detail` also contains `changes`, a list of `{"path": …, "kind": "update"}`. If a
    subagent made the call, `parent_tool_use_id` is the id of the call that started this subagent.
    After the call has ended, `output_preview` contains the first 500 characters of the output. For
    a shell command, `exit_code` is added too.

    For a warning, `detail` contains `code` and, if the CLI printed a malformed line, `line`.
    """

    id: str
    kind: Kind
    title: str
    detail: dict[str, Any] = {}


class StartedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="started"):
    """The run has started and its session is known.

    Untether shows `meta` in the footer of a chat message. It can contain `model`, `pid`, and
    `permissionMode` (`full access` for `yolo`, `edit files` for `auto_edit`). Unknown values are
    omitted.
    """

    engine: str = ENGINE
    resume: ResumeToken
    title: str | None = ENGINE
    meta: dict[str, Any] | None = None


class ActionEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="action"):
    """An action starts, changes or ends. `ok` says whether the action succeeded; it is None until
    the action has ended."""

    engine: str = ENGINE
    action: Action
    phase: Literal["started", "updated", "completed"]
    ok: bool | None = None
    message: str | None = None
    level: Literal["debug", "info", "warning", "error"] | None = None


class CompletedEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="completed"):
    """The last event: the run has ended.

    `usage` is
    `{"usage": {"input_tokens", "output_tokens", "cache_read_tokens"}, "duration_ms", "total_cost_usd"}`;
    None if no model answered. Input tokens include cached tokens. Output tokens exclude thinking,
    as in the CLI's own totals. An unknown number of input or output tokens is None, and so is an
    unknown cost. Other unknown values are omitted.
    """

    engine: str = ENGINE
    ok: bool
    answer: str
    resume: ResumeToken | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None


UntetherEvent = StartedEvent | ActionEvent | CompletedEvent


def encode_untether_event(event: UntetherEvent) -> bytes:
    """Encode an event as one line of JSON, without the newline. Fields that are None become null."""
    try:
        return encode_json(event)
    except RecursionError:
        # Only the input of a tool can be nested this deeply.
        assert isinstance(event, ActionEvent)
        action = msgspec.structs.replace(event.action, detail={**event.action.detail, "input": {}})
        return encode_untether_event(msgspec.structs.replace(event, action=action))
