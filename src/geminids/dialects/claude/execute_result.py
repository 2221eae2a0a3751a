"""Build what agent-cli-sdk's function `execute` returns, from the events of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from geminids.dialects.claude.conversation import (
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnifiedContent,
    UnifiedMessage,
    Usage,
)
from geminids.dialects.claude.tools import claude_tool
from geminids.events.accumulator import Accumulator, turns_of
from geminids.events.encoding import encode_json
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

# Reported as the exit code of a run that was refused or timed out.
_NO_EXIT = -1
_FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Executed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What agent-cli-sdk's `execute` returns: whether the run succeeded, and its messages.

    `exit_code` is 0 only if the run succeeded. It is -1 if the run was refused, timed out, or has
    no known end. `duration` is in milliseconds. `data` is the agent's text or, with `json=True`,
    the JSON value in this text. `error` says why the run failed; it is None if the run succeeded.
    In JSON, the field names are in camelCase.
    """

    success: bool
    exit_code: int
    session_id: str
    duration: int
    messages: list[UnifiedMessage]
    data: Any
    error: str | None = None


def executed(events: Iterable[Event], *, json: bool = False) -> Executed:
    """Return what agent-cli-sdk's `execute` returns for a run with these events.

    With `json=True`, `data` is the JSON value in the agent's text; None if the text contains none.
    """
    collector = ExecutedCollector()
    for event in events:
        collector.add((event,))
    return collector.finish(json=json)


def refused(message: str) -> Executed:
    """Return what agent-cli-sdk's `execute` returns for a run that did not start. `message` says
    why."""
    return Executed(
        success=False, exit_code=_NO_EXIT, session_id="", duration=0, messages=[], data="", error=message
    )


class ExecutedCollector:
    """Collects the events of a run, and builds `Executed` from them at the end."""

    def __init__(self) -> None:
        self._accumulator = Accumulator()
        self._turn_starts: dict[int, int] = {}
        self._started: Started | None = None
        self._finished: Finished | None = None

    def add(self, events: Sequence[Event]) -> None:
        self._accumulator.add(events)
        for event in events:
            if isinstance(event, Started):
                self._started = event
                self._turn_starts.clear()
            elif isinstance(event, Finished):
                self._finished = event
            elif not isinstance(event, Notice):
                self._turn_starts.setdefault(event.turn, event.at)

    def finish(self, *, json: bool) -> Executed:
        finished, text = self._finished, self._accumulator.text
        if finished is None:
            error: str | None = "the run gave no result"
        else:
            error = None if finished.outcome == "success" else finished.reason or finished.outcome
        session_id = finished.session_id if finished else self._accumulator.session_id
        return Executed(
            success=error is None,
            exit_code=_exit_code(finished, was_started=self._started is not None),
            session_id=session_id or "",
            duration=finished.duration_ms if finished else 0,
            messages=list(self._messages()),
            data=_json_in(text) if json else text,
            error=error,
        )

    def _messages(self) -> Iterable[UnifiedMessage]:
        started = self._started
        run_id = started.run_id if started else ""
        if started is not None and started.prompt is not None:
            raw = msgspec.Raw(encode_json(started))
            yield UnifiedMessage(f"{run_id}-0", "user", [Text(started.prompt)], started.at, "gemini", raw=raw)
        model = started.model if started else None
        for turn in turns_of(self._accumulator.text, self._accumulator.conversation()):
            if _is_refused(turn):
                continue
            yield _message(f"{run_id}-{turn.number}", turn, self._turn_starts.get(turn.number), model)


def _exit_code(finished: Finished | None, *, was_started: bool) -> int:
    if finished is None or finished.outcome == "timed_out":
        return _NO_EXIT
    if finished.outcome == "success":
        return 0
    if not was_started:
        return _NO_EXIT
    # The CLI ends some failed runs with exit code 0, which callers would take for a success.
    return finished.exit_code or EXIT_CODES[finished.outcome]


def _message(message_id: str, turn: Turn, at: int | None, model: str | None) -> UnifiedMessage:
    """Convert a turn to a message: thinking, then each call with its result, then text.

    Thoughts and tool calls of subagents are omitted.
    """
    blocks: list[UnifiedContent] = [
        Thinking(f"{thought.subject}: {thought.text}" if thought.subject else thought.text)
        for thought in turn.thoughts
        if thought.parent is None
    ]
    for tool in turn.tools:
        if tool.parent is None:
            blocks += _call(tool)
    if turn.text.strip():
        blocks.append(Text(turn.text))
    requests = [used for used in turn.tokens if used.role == "main" and not used.is_http_error]
    served = next((request.model for request in requests if request.model), model)
    return UnifiedMessage(
        message_id, "assistant", blocks or turn.text, at, "gemini", served, _usage(requests), _original(turn)
    )


def _is_refused(turn: Turn) -> bool:
    """Return whether a turn has no content because the API rejected all of its requests."""
    content = turn.thoughts or turn.text or turn.tools
    return not content and all(used.is_http_error for used in turn.tokens)


def _original(turn: Turn) -> msgspec.Raw:
    # Encode each call separately: its input may already be as deep as the encoder's nesting limit.
    tools = [msgspec.Raw(encode_event(tool)) for tool in turn.tools]
    fields = {"number": turn.number, "thoughts": turn.thoughts, "text": turn.text, "tools": tools}
    return msgspec.Raw(msgspec.json.encode({**fields, "tokens": turn.tokens}))


def _call(tool: ToolFinished) -> list[UnifiedContent]:
    name, tool_input = claude_tool(tool.name, tool.input or {})
    result = ToolResult(tool.id, tool.output or tool.error or "", tool.status != "ok")
    return [ToolUse(tool.id, name, tool_input if tool.input is not None else {}), result]


def _usage(requests: list[TokensUsed]) -> Usage | None:
    """Return the token counts of `requests`, added up. Return None if a count is unknown or if
    there are no requests."""
    sums = []
    for name in ("input", "output", "cached", "thinking", "tool"):
        counts = [getattr(request, name) for request in requests]
        if not counts or None in counts:
            return None
        sums.append(sum(counts))
    prompt, output, cached, thinking, tool = sums
    return Usage(prompt, output, prompt + output + thinking + tool, cached, thinking, tool)


def _json_in(text: str) -> Any:
    """Return the JSON value in a text; None if the text contains none.

    Try to decode the whole text first, then each fenced code block, then the text from the first
    `{` to the last `}`.
    """
    braces = text[text.find("{") : text.rfind("}") + 1] if "{" in text else ""
    for piece in (text, *(block[1] for block in _FENCED.finditer(text)), braces):
        try:
            return msgspec.json.decode(piece)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            continue
    return None
