"""The transcript of a run for Leadmetrics and Paperclip: entries with a kind and a time."""

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
    """The fields of every entry. `ts` is the time of its first event."""

    ts: str


class Init(Entry, frozen=True, kw_only=True, tag="init"):
    """An attempt started."""

    model: str
    session_id: str


class User(Entry, frozen=True, kw_only=True, tag="user"):
    """The prompt."""

    text: str


class Assistant(Entry, frozen=True, kw_only=True, tag="assistant"):
    """The agent's text between two other entries, its deltas joined."""

    text: str


class Thinking(Entry, frozen=True, kw_only=True, tag="thinking", omit_defaults=True):
    """A thought of the model.

    `parent_tool_use_id`, here and below, is the call of the subagent that it belongs to.
    """

    text: str
    parent_tool_use_id: str | None = None


class ToolCall(Entry, frozen=True, kw_only=True, tag="tool_call", omit_defaults=True):
    """A tool call; `input` is null if it is not known."""

    name: str
    input: Any
    tool_use_id: str
    parent_tool_use_id: str | None = None


class ToolResult(Entry, frozen=True, kw_only=True, tag="tool_result", omit_defaults=True):
    """How a call ended. `status` and `exit_code` are our additions."""

    tool_use_id: str
    tool_name: str
    content: str
    is_error: bool
    status: str
    exit_code: int | None = None
    parent_tool_use_id: str | None = None


class Stderr(Entry, frozen=True, kw_only=True, tag="stderr"):
    """A warning or an error of the CLI."""

    text: str


class System(Entry, frozen=True, kw_only=True, tag="system"):
    """A warning or an error of geminids, or a permission decision."""

    text: str


class Transcript:
    """Builds the entries from events, in the order of their arrival."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._text = StringIO()
        self._text_at: int | None = None
        # Calls that have not ended: the index of their entry, and the command of their permission
        # request.
        self._open: dict[str, int] = {}
        self._commands: dict[str, str] = {}

    def feed(self, events: Sequence[Event]) -> None:
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
        """Add an entry that comes from no event."""
        self._flush()
        self._entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        self._flush()
        return tuple(self._entries)

    def _announce(self, notice: Notice) -> None:
        """Add the session, and the model that the CLI chose, to the attempt's `init` entry."""
        named = notice.session
        at = next((at for at in reversed(range(len(self._entries))) if type(self._entries[at]) is Init), None)
        if named is None or at is None:
            return
        init: Any = self._entries[at]
        session, model = init.session_id or named.session_id, init.model
        made = Init(
            ts=init.ts, model=(named.model or model) if model == _UNNAMED else model, session_id=session
        )
        self._entries[at] = made

    def _close(self, event: ToolFinished) -> None:
        """Put the call before its result, and add the input, which the warm transport has only now.

        The command of a denied call is in its permission request only.
        """
        at = self._open.pop(event.id, None)
        command = self._commands.pop(event.id, None)
        tool_input = {"command": command} if event.input is None and command is not None else event.input
        if at is None:
            self._entries.append(_call(event))
            at = len(self._entries) - 1
        call = self._entries[at]
        if isinstance(call, ToolCall) and call.input is None and tool_input is not None:
            self._entries[at] = msgspec.structs.replace(call, input=tool_input)

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
    """Cached: most events have the same second as the one before."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _entries_of(event: Event) -> tuple[Entry, ...] | None:
    """The entries for an event, or None."""
    make_entries = _MAKERS.get(type(event))
    return make_entries(event) if make_entries is not None else None


def _thought(event: Thought) -> tuple[Entry, ...]:
    text = f"{event.subject}: {event.text}" if event.subject else event.text
    return (Thinking(ts=iso_time(event.at), text=text, parent_tool_use_id=event.parent),)


def _started(event: Started) -> tuple[Entry, ...]:
    ts = iso_time(event.at)
    init = Init(ts=ts, model=event.model or _UNNAMED, session_id=event.session_id or "")
    return (init,) if event.prompt is None else (init, User(ts=ts, text=event.prompt))


def _decided(event: PermissionDecided) -> tuple[Entry, ...]:
    reason = f": {event.reason}" if event.reason else ""
    return (System(ts=iso_time(event.at), text=f"{event.tool}: {event.decision} ({event.by}){reason}"),)


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
    content = event.error if failed and event.error is not None else event.output
    return ToolResult(
        ts=iso_time(event.at),
        tool_use_id=event.id,
        tool_name=event.name,
        content=content or "",
        is_error=failed,
        status=event.status,
        exit_code=event.exit_code,
        parent_tool_use_id=event.parent,
    )


_MAKERS: dict[type[Event], Callable[[Any], tuple[Entry, ...] | None]] = {
    ToolStarted: lambda event: (_call(event),),
    ToolFinished: lambda event: (_result(event),),
    Thought: _thought,
    Started: _started,
    PermissionDecided: _decided,
    Notice: _noticed,
}
