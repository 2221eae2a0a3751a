"""What `execute` of agent-cli-sdk returns: the whole conversation of a run as messages in Claude's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from geminids.dialects.claude.conversation import (
    Block,
    ClaudeMessage,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from geminids.dialects.claude.tools import claude_tool
from geminids.events.accumulator import Accumulator, turns_of
from geminids.events.model import (
    Event,
    Finished,
    Notice,
    Started,
    TokensUsed,
    ToolFinished,
    Turn,
    encode_event,
)
from geminids.outcome import EXIT_CODES

__all__ = ["Executed", "ExecutedCollector", "executed", "refused"]

# The exit code of a run without one: it was refused, or it timed out.
_NO_EXIT = -1
_FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Executed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How a run ended. `data` is the agent's text, or the JSON value in it."""

    success: bool
    exit_code: int
    session_id: str
    duration: int
    messages: list[ClaudeMessage]
    data: Any
    error: str | None = None


def executed(events: Iterable[Event], *, json: bool = False) -> Executed:
    """What `execute` returns for a run with these events; `json` returns the JSON value in its text as `data`."""
    collector = ExecutedCollector()
    for event in events:
        collector.add((event,))
    return collector.finish(json=json)


def refused(message: str) -> Executed:
    """What `execute` returns when the run was refused before it started."""
    return Executed(
        success=False, exit_code=_NO_EXIT, session_id="", duration=0, messages=[], data="", error=message
    )


class ExecutedCollector:
    """Collects the events of a run, and builds `Executed` from them at the end."""

    def __init__(self) -> None:
        self._fold = Accumulator()
        self._began: dict[int, int] = {}
        self._started: Started | None = None
        self._finished: Finished | None = None

    def add(self, events: Sequence[Event]) -> None:
        self._fold.add(events)
        for event in events:
            if isinstance(event, Started):
                self._started = event
                self._began.clear()
            elif isinstance(event, Finished):
                self._finished = event
            elif not isinstance(event, Notice):
                self._began.setdefault(event.turn, event.at)

    def finish(self, *, json: bool) -> Executed:
        finished, text = self._finished, self._fold.text
        if finished is None:
            error: str | None = "the run gave no result"
        else:
            error = None if finished.outcome == "success" else finished.reason or finished.outcome
        known = finished.session_id if finished else self._fold.session_id
        return Executed(
            success=error is None,
            exit_code=_exit_code(finished),
            session_id=known or "",
            duration=finished.duration_ms if finished else 0,
            messages=list(self._messages()),
            data=_json_in(text) if json else text,
            error=error,
        )

    def _messages(self) -> Iterable[ClaudeMessage]:
        started = self._started
        run_id = started.run_id if started else ""
        if started is not None and started.prompt is not None:
            raw = msgspec.Raw(encode_event(started))
            yield ClaudeMessage(f"{run_id}-0", "user", [Text(started.prompt)], started.at, "gemini", raw=raw)
        model = started.model if started else None
        for turn in turns_of(self._fold.text, self._fold.conversation()):
            if _is_refused(turn):
                continue
            yield _message(f"{run_id}-{turn.number}", turn, self._began.get(turn.number, 0), model)


def _exit_code(finished: Finished | None) -> int:
    if finished is None or finished.outcome == "timed_out":
        return _NO_EXIT
    if finished.outcome == "success":
        return 0
    # Some failures end with 0, which would be read as a success.
    return finished.exit_code or EXIT_CODES[finished.outcome]


def _message(message_id: str, turn: Turn, at: int, model: str | None) -> ClaudeMessage:
    """One turn: thinking, then each call with its result, then text; what subagents did is no part of it."""
    blocks: list[Block] = [
        Thinking(f"{one.subject}: {one.text}" if one.subject else one.text)
        for one in turn.thoughts
        if one.parent is None
    ]
    for tool in turn.tools:
        if tool.parent is None:
            blocks += _call(tool)
    if turn.text.strip():
        blocks.append(Text(turn.text))
    requests = [one for one in turn.tokens if one.role == "main" and not one.is_http_error]
    served = next((one.model for one in requests if one.model), model)
    return ClaudeMessage(
        message_id, "assistant", blocks or turn.text, at, "gemini", served, _usage(requests), _original(turn)
    )


def _is_refused(turn: Turn) -> bool:
    """Whether the API refused the turn's requests, so that there is no message."""
    others = turn.thoughts or turn.text or turn.tools
    return not others and all(one.is_http_error for one in turn.tokens)


def _original(turn: Turn) -> msgspec.Raw:
    # Each call by itself: its input may be as deep as JSON can be.
    tools = [msgspec.Raw(encode_event(tool)) for tool in turn.tools]
    told = {"number": turn.number, "thoughts": turn.thoughts, "text": turn.text, "tools": tools}
    return msgspec.Raw(msgspec.json.encode({**told, "tokens": turn.tokens}))


def _call(tool: ToolFinished) -> list[Block]:
    name, given = claude_tool(tool.name, tool.input or {})
    result = ToolResult(tool.id, tool.output or tool.error or "", tool.status != "ok")
    return [ToolUse(tool.id, name, given if tool.input is not None else {}), result]


def _usage(requests: list[TokensUsed]) -> Usage | None:
    """The tokens of a turn, where all of them are known."""
    sums = []
    for name in ("input", "output", "cached", "thinking", "tool"):
        counts = [getattr(one, name) for one in requests]
        if not counts or None in counts:
            return None
        sums.append(sum(counts))
    read, written, cached, thinking, tool = sums
    return Usage(read, written, read + written + thinking + tool, cached, thinking, tool)


def _json_in(text: str) -> Any:
    """The value that a text holds: the whole of it, else a fenced block, else from the first brace to the last."""
    braces = text[text.find("{") : text.rfind("}") + 1] if "{" in text else ""
    for piece in (text, *(found[1] for found in _FENCED.finditer(text)), braces):
        try:
            return msgspec.json.decode(piece)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
    return None
