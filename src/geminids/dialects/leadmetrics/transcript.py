"""The transcript of a run as Paperclip's and Leadmetrics' pages read it: entries with a kind and a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from io import StringIO
from typing import Any

import msgspec

from geminids.events.model import (
    Event,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Started,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)

__all__ = [
    "Assistant",
    "Entry",
    "Init",
    "Stderr",
    "System",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Transcript",
    "User",
    "iso_time",
]

_OF_STDERR = {
    "api_error",
    "tool_error",
    "warning",
    "retry",
    "attempt",
    "gave_up",
    "security",
    "approval",
    "mcp",
}
_UNNAMED = "unknown"
_LATEST = 253_402_300_799_999  # the last millisecond of the year 9999


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", rename="camel"):
    """What every entry has. `ts` is the time of its first piece."""

    ts: str


class Init(Entry, frozen=True, kw_only=True, tag="init"):
    """An attempt began."""

    model: str
    session_id: str


class User(Entry, frozen=True, kw_only=True, tag="user"):
    """What was asked."""

    text: str


class Assistant(Entry, frozen=True, kw_only=True, tag="assistant"):
    """What the agent said between two other entries: all deltas of it, joined."""

    text: str


class Thinking(Entry, frozen=True, kw_only=True, tag="thinking", omit_defaults=True):
    """What the model thought. `parent_tool_use_id`, here and below, names the call of the subagent that it was."""

    text: str
    parent_tool_use_id: str | None = None


class ToolCall(Entry, frozen=True, kw_only=True, tag="tool_call", omit_defaults=True):
    """A call; `input` is null where it is not known."""

    name: str
    input: Any
    tool_use_id: str
    parent_tool_use_id: str | None = None


class ToolResult(Entry, frozen=True, kw_only=True, tag="tool_result", omit_defaults=True):
    """How a call ended. `status` and `exit_code` are ours besides."""

    tool_use_id: str
    tool_name: str
    content: str
    is_error: bool
    status: str
    exit_code: int | None = None
    parent_tool_use_id: str | None = None


class Stderr(Entry, frozen=True, kw_only=True, tag="stderr"):
    """A warning or an error of the CLI's."""

    text: str


class System(Entry, frozen=True, kw_only=True, tag="system"):
    """A warning or an error of ours, or a decision of somebody who was asked."""

    text: str


class Transcript:
    """Hears events, in the order in which they came, and keeps the entries."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._text = StringIO()
        self._text_at: int | None = None
        # The calls that have not ended: where their entries are, and what somebody was asked to allow.
        self._open: dict[str, int] = {}
        self._commands: dict[str, str] = {}

    def hear(self, events: Sequence[Event]) -> None:
        write = self._text.write
        for event in events:
            if type(event) is Text:
                if self._text_at is None:
                    self._text_at = event.at
                write(event.text)
            elif type(event) is PermissionAsked:
                if event.command is not None:
                    self._commands[event.id] = event.command
            elif type(event) is Notice and event.code == "session":
                self._announce(event)
            elif (entries := _entries_of(event)) is not None:
                self._flush()
                write = self._text.write
                if type(event) is ToolFinished:
                    self._close(event)
                elif type(event) is ToolStarted:
                    self._open[event.id] = len(self._entries)
                self._entries += entries

    def add(self, entry: Entry) -> None:
        """Something that no event has told."""
        self._flush()
        self._entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        self._flush()
        return tuple(self._entries)

    def _announce(self, notice: Notice) -> None:
        """What an attempt did not know when it began: its session, and the CLI's own choice of a model."""
        told = notice.session
        at = next((at for at in reversed(range(len(self._entries))) if type(self._entries[at]) is Init), None)
        if told is None or at is None:
            return
        init: Any = self._entries[at]
        session, model = init.session_id or told.session_id, init.model
        made = Init(
            ts=init.ts, model=(told.model or model) if model == _UNNAMED else model, session_id=session
        )
        self._entries[at] = made

    def _close(self, event: ToolFinished) -> None:
        """Every result has its call before it; on the warm lane the call's input is known only now.

        Of a command that was not allowed there, the question alone tells it.
        """
        at = self._open.pop(event.id, None)
        command = self._commands.pop(event.id, None)
        given = {"command": command} if event.input is None and command is not None else event.input
        if at is None:
            self._entries.append(_call(event))
            at = len(self._entries) - 1
        call = self._entries[at]
        if isinstance(call, ToolCall) and call.input is None and given is not None:
            self._entries[at] = msgspec.structs.replace(call, input=given)

    def _flush(self) -> None:
        if self._text_at is not None:
            self._entries.append(Assistant(ts=iso_time(self._text_at), text=self._text.getvalue()))
            self._text, self._text_at = StringIO(), None


def iso_time(at: int) -> str:
    """Unix milliseconds as ISO-8601 in UTC.

    >>> iso_time(1_767_225_600_000)
    '2026-01-01T00:00:00.000Z'
    """
    kept = min(max(at, 0), _LATEST)
    return f"{_second(kept // 1000)}.{kept % 1000:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    """Kept for the events of the same second, which are most of them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _entries_of(event: Event) -> tuple[Entry, ...] | None:
    """What an event is told as, or None."""
    told = _TOLD.get(type(event))
    return told(event) if told is not None else None


def _thought(event: Thought) -> tuple[Entry, ...]:
    text = f"{event.subject}: {event.text}" if event.subject else event.text
    return (Thinking(ts=iso_time(event.at), text=text, parent_tool_use_id=event.parent),)


def _started(event: Started) -> tuple[Entry, ...]:
    ts = iso_time(event.at)
    init = Init(ts=ts, model=event.model or _UNNAMED, session_id=event.session_id or "")
    return (init,) if event.prompt is None else (init, User(ts=ts, text=event.prompt))


def _decided(event: PermissionDecided) -> tuple[Entry, ...]:
    why = f": {event.reason}" if event.reason else ""
    return (System(ts=iso_time(event.at), text=f"{event.tool}: {event.decision} ({event.by}){why}"),)


def _noticed(event: Notice) -> tuple[Entry, ...] | None:
    if event.level not in ("warning", "error"):
        return None
    kind = Stderr if event.code in _OF_STDERR else System
    return (kind(ts=iso_time(event.at), text=event.message),)


def _call(event: ToolStarted | ToolFinished) -> ToolCall:
    return ToolCall(
        ts=iso_time(event.at),
        name=event.name,
        input=event.input,
        tool_use_id=event.id,
        parent_tool_use_id=event.parent,
    )


def _result(event: ToolFinished) -> ToolResult:
    failed = event.status != "ok"
    told = event.error if failed and event.error is not None else event.output
    return ToolResult(
        ts=iso_time(event.at),
        tool_use_id=event.id,
        tool_name=event.name,
        content=told or "",
        is_error=failed,
        status=event.status,
        exit_code=event.exit_code,
        parent_tool_use_id=event.parent,
    )


_TOLD: dict[type[Event], Callable[[Any], tuple[Entry, ...] | None]] = {
    ToolStarted: lambda event: (_call(event),),
    ToolFinished: lambda event: (_result(event),),
    Thought: _thought,
    Started: _started,
    PermissionDecided: _decided,
    Notice: _noticed,
}
