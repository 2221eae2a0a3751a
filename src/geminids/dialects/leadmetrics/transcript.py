"""Build the transcript of a run for Leadmetrics and Paperclip: entries with a kind and a time."""

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
    """The base of all entries. `ts` is a time in UTC, and never earlier than the `ts` of the
    previous entry."""

    ts: str


class Init(Entry, frozen=True, kw_only=True, tag="init"):
    """The start of an attempt."""

    model: str
    session_id: str


class User(Entry, frozen=True, kw_only=True, tag="user"):
    """The prompt of the run."""

    text: str


class Assistant(Entry, frozen=True, kw_only=True, tag="assistant"):
    """The text that the agent wrote in one turn."""

    text: str


class Thinking(Entry, frozen=True, kw_only=True, tag="thinking", omit_defaults=True):
    """A thought of the model.

    If a subagent had the thought, `parent_tool_use_id` is the id of the tool call that started this
    subagent. For the main agent, it is None. The field has the same meaning in the following
    classes.
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
    """The result of a tool call. `status` and `exit_code` are fields that geminids adds to the
    format."""

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


class _Item:
    """An entry of the transcript, and the time of its event.

    If the entry is the result of a subagent, `inside` contains the entries of this subagent that
    arrived after the result; otherwise it is empty. In the transcript, the items in `inside` come
    directly before the entry.
    """

    __slots__ = ("at", "entry", "inside")

    def __init__(self, at: int, entry: Entry) -> None:
        self.at = at
        self.entry = entry
        self.inside: list[_Item] = []


# The parts of a turn, in their order in the transcript.
_START, _THOUGHTS, _TOOLS, _TEXT = range(4)


class _Turn:
    """The entries of one turn: its start, thoughts, tool calls with results, and text."""

    def __init__(self) -> None:
        self._parts: tuple[list[_Item], ...] = ([], [], [], [])
        self._last = _START
        self._text: _Item | None = None
        self._pieces = StringIO()

    def add(self, item: _Item, part: int | None = None) -> None:
        """Add an item to the turn. `part` is the part of the turn to which the item belongs:
        `_THOUGHTS`, `_TOOLS` or `_TEXT`. If `part` is None, the item follows all items added so
        far."""
        self._last = self._last if part is None else max(self._last, part)
        self._parts[self._last if part is None else part].append(item)

    def add_text(self, event: Text) -> None:
        if self._text is None:
            self._text = _Item(event.at, Assistant(ts="", text=""))
            self.add(self._text, _TEXT)
        self._pieces.write(event.text)

    def items(self) -> list[_Item]:
        if self._text is not None:
            self._text.entry = Assistant(ts="", text=self._pieces.getvalue())
        thoughts = self._parts[_THOUGHTS]
        # The CLI reports thoughts late, but they came before the calls and the text.
        first = min((item.at for part in self._parts[_TOOLS:] for item in part), default=None)
        for item in thoughts:
            item.at = item.at if first is None else min(item.at, first)
        return [item for part in self._parts for item in part]


class _Call:
    """A tool call. If a subagent made it, `parent` is the call that started this subagent."""

    __slots__ = ("item", "parent", "result", "turn")

    def __init__(self, item: _Item, turn: _Turn, parent: _Call | None) -> None:
        self.item = item
        self.turn = turn
        self.parent = parent
        self.result: _Item | None = None


class Transcript:
    """Builds the entries from events, turn by turn.

    The CLI reports the thoughts of a turn after its text and its tool calls. It reports the tools
    of a subagent after the result of the subagent. The transcript changes this order. A turn has
    its thoughts first, then its tool calls with their results, then its text. The tools of a
    subagent come before the result of the subagent. A warning stays after everything that was
    reported before it.
    """

    def __init__(self) -> None:
        self._turns: dict[tuple[int, int], _Turn] = {(0, 0): _Turn()}
        self._key = (0, 0)
        self._turn = self._turns[self._key]
        self._init: _Item | None = None
        self._users: dict[int, _Item] = {}
        self._calls: dict[str, _Call] = {}
        self._commands: dict[str, str] = {}
        """The shell commands of permission requests, by the id of the tool call."""

    def feed(self, events: Sequence[Event]) -> None:
        for event in events:
            if (event.attempt, event.turn) != self._key:
                self._key = (event.attempt, event.turn)
                self._turn = self._turns.setdefault(self._key, _Turn())
            if type(event) is Text:
                self._turn.add_text(event)
            elif (add := _ADD.get(type(event))) is not None:
                add(self, event)

    def add_note(self, text: str, *, at: int) -> None:
        """Add a `system` entry that does not come from an event, after all other entries."""
        self._turns[max(self._turns)].add(_Item(at, System(ts="", text=text)))

    def set_prompt(self, text: str, *, attempt: int) -> None:
        """Replace the prompt of an attempt with the text that was sent to the CLI. That text
        includes the template and the instructions of the run."""
        if attempt in self._users:
            self._users[attempt].entry = User(ts="", text=text)

    @property
    def model(self) -> str | None:
        """The model of the last `init` entry; None if it is not known."""
        init: Any = self._init.entry if self._init is not None else None
        return init.model if init is not None and init.model != _UNNAMED else None

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries. Their times never decrease."""
        entries = []
        latest = 0
        waiting = [
            item for key in sorted(self._turns, reverse=True) for item in self._turns[key].items()[::-1]
        ]
        while waiting:
            item = waiting.pop()
            if item.inside:
                # Not recursive: the events may be nested at any depth.
                waiting += [_Item(item.at, item.entry), *item.inside[::-1]]
                continue
            latest = max(latest, item.at)
            entries.append(msgspec.structs.replace(item.entry, ts=iso_time(latest)))
        return tuple(entries)

    def add_started(self, event: Started) -> None:
        init = Init(ts="", model=event.model or _UNNAMED, session_id=event.session_id or "")
        self._init = _Item(event.at, init)
        self._turn.add(self._init)
        if event.prompt is not None:
            self._users[event.attempt] = _Item(event.at, User(ts="", text=event.prompt))
            self._turn.add(self._users[event.attempt])

    def add_notice(self, event: Notice) -> None:
        if event.code == "session":
            self._add_session(event)
        elif event.level in ("warning", "error"):
            kind = Stderr if event.code in _OF_STDERR else System
            self._turn.add(_Item(event.at, kind(ts="", text=event.message)))

    def add_thought(self, event: Thought) -> None:
        text = f"{event.subject}: {event.text}" if event.subject else event.text
        item = _Item(event.at, Thinking(ts="", text=text, parent_tool_use_id=event.parent))
        parent = self._calls.get(event.parent) if event.parent is not None else None
        if event.parent is None:
            self._turn.add(item, _THOUGHTS)
        else:
            _add_tool(item, parent.turn if parent else self._turn, parent)

    def add_permission_request(self, event: PermissionAsked) -> None:
        if event.command is not None:
            self._commands[event.id] = event.command

    def add_decision(self, event: PermissionDecided) -> None:
        reason = f": {event.reason}" if event.reason else ""
        text = f"{event.tool}: {event.decision} ({event.by}){reason}"
        self._turn.add(_Item(event.at, System(ts="", text=text)))

    def add_call(self, event: ToolStarted | ToolFinished) -> _Call:
        entry = ToolCall(
            ts="",
            name=event.name,
            input=event.input,
            tool_use_id=event.id,
            parent_tool_use_id=event.parent,
        )
        parent = self._calls.get(event.parent) if event.parent is not None else None
        call = _Call(_Item(event.at, entry), parent.turn if parent else self._turn, parent)
        _add_tool(call.item, call.turn, parent)
        self._calls[event.id] = call
        return call

    def add_result(self, event: ToolFinished) -> None:
        """Add the result of a tool call. If the input of the call was not known before, add the
        input to the call.

        On the warm transport, where the CLI is already running before the run starts, the input is
        reported with the result. The command of a denied call is only in its permission request.
        """
        call = self._calls.get(event.id)
        if call is None or call.result is not None:
            call = self.add_call(event)
        command = self._commands.pop(event.id, None)
        tool_input = {"command": command} if event.input is None and command is not None else event.input
        entry: Any = call.item.entry
        if entry.input is None and tool_input is not None:
            call.item.entry = msgspec.structs.replace(entry, input=tool_input)
        call.result = _Item(event.at, _result(event))
        _add_tool(call.result, call.turn, call.parent)

    def _add_session(self, notice: Notice) -> None:
        """Add the session id, and the model that the CLI chose, to the `init` entry of the current
        attempt."""
        named = notice.session
        if named is None or self._init is None:
            return
        init: Any = self._init.entry
        session, model = init.session_id or named.session_id, init.model
        self._init.entry = Init(
            ts="", model=(named.model or model) if model == _UNNAMED else model, session_id=session
        )


_ADD: dict[type[Event], Callable[[Transcript, Any], object]] = {
    ToolStarted: Transcript.add_call,
    ToolFinished: Transcript.add_result,
    Thought: Transcript.add_thought,
    Started: Transcript.add_started,
    PermissionAsked: Transcript.add_permission_request,
    PermissionDecided: Transcript.add_decision,
    Notice: Transcript.add_notice,
}


def _add_tool(item: _Item, turn: _Turn, parent: _Call | None) -> None:
    """Add a tool call, a tool result or a subagent's thought to a turn.

    If a subagent made the item, `parent` is the call that started this subagent; otherwise it is
    None. If the transcript already contains the result of `parent`, the item is placed before that
    result.
    """
    if parent is not None and parent.result is not None:
        parent.result.inside.append(item)
    else:
        turn.add(item, _TOOLS)


def iso_time(at: int) -> str:
    """Return a time in Unix milliseconds as ISO 8601 in UTC.

    >>> iso_time(1_767_225_600_000)
    '2026-01-01T00:00:00.000Z'
    """
    kept = min(max(at, 0), _LATEST)
    return f"{_second(kept // 1000)}.{kept % 1000:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    """Return a time in Unix seconds as ISO 8601 in UTC.

    The result is cached, because most events happen in the same second as the event before.
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _result(event: ToolFinished) -> ToolResult:
    failed = event.status != "ok"
    content = event.error if failed and event.error is not None else event.output
    return ToolResult(
        ts="",
        tool_use_id=event.id,
        tool_name=event.name,
        content=content or "",
        is_error=failed,
        status=event.status,
        exit_code=event.exit_code,
        parent_tool_use_id=event.parent,
    )
