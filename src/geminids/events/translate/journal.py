"""Messages of a session journal become what the stream leaves out: thoughts, tokens, and the truth about tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from geminids.events.model import (
    Change,
    Event,
    Role,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    ToolStatus,
)
from geminids.events.numbering import EventNumbers
from geminids.gemini.protocol import tool_results as tools
from geminids.gemini.protocol.journal.records import Message, ToolCall
from geminids.redact import Redactor

__all__ = ["JournalTranslator", "Truth", "at_of", "redacted_truth", "truth_of", "with_truth"]

_WRAPPED = re.compile(r"\A<untrusted_context>\n(.*)\n</untrusted_context>\Z", re.DOTALL)
# What the shell tool tells the model: the output, then lines about it, each of them once and in this order
# (core/src/tools/shell.ts). The output itself may have such lines: only those at the very end are the tool's.
_OUTPUT = "Output: "
_ABOUT = re.compile(
    r"(?P<error>\nError: [^\n]*)?(?:\nExit Code: (?P<code>-?\d+))?(?P<signal>\nSignal: [^\n]*)?"
    r"(?:\nBackground PIDs: [^\n]*)?\nProcess Group PGID: \d+\Z"
)
_EMPTY = "(empty)"
# What the model is told of a command that was cancelled, which the CLI calls a success: what a command itself has
# said comes after `Output: `.
_CANCELLED = re.compile(r"(<untrusted_context>\n)?Command was cancelled by user before it could complete\.")
_GROUP = re.compile(r"\nProcess Group PGID: (\d+)(?:\n</untrusted_context>)?\Z")


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a tool call, as the model was told."""

    output: str | None = None
    error: str | None = None
    status: ToolStatus | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] = ()
    agent_id: str | None = None
    input: dict[str, Any] | None = None
    """What the tool was called with; the stream tells it itself, ACP does not."""
    group: int | None = None
    """The process group that a shell command ran in."""


def truth_of(call: ToolCall) -> Truth | None:
    """None while the tool still runs."""
    response = _response(call)
    if response is None and call.status not in ("error", "cancelled"):
        return None
    output, error = _text(response, "output"), _text(response, "error")
    exit_code = group = None
    cancelled = call.status == "cancelled"
    if call.name == "run_shell_command" and output is not None:
        cancelled = cancelled or _CANCELLED.match(output) is not None
        told = _GROUP.search(output)
        group = int(told[1]) if told else None
        output, exit_code = _of_shell(output, call.result_display)
    return Truth(
        output=output,
        error=error,
        status="cancelled" if cancelled else None,
        exit_code=exit_code,
        changes=tuple(_changes(call.result_display)),
        agent_id=call.agent_id,
        input=call.args if isinstance(call.args, dict) else None,
        group=group,
    )


def _response(call: ToolCall) -> Mapping[str, Any] | None:
    """The response to this very call: each of several calls may hold the responses to all of them (0.61.0)."""
    told = [
        found
        for part in (call.result if isinstance(call.result, list) else ())
        if isinstance(part, dict) and isinstance(found := part.get("functionResponse"), dict)
    ]
    own = [found for found in told if found.get("id") == call.id]
    responses = [found.get("response") for found in own or told[:1]]
    return next((response for response in responses if isinstance(response, dict)), None)


def _text(response: Mapping[str, Any] | None, name: str) -> str | None:
    value = response.get(name) if response is not None else None
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _of_shell(output: str, display: Any) -> tuple[str, int | None]:
    """The output itself, and the exit code: 0 is not told, but a command that ended has its process group told."""
    wrapped = _WRAPPED.match(output)
    text = wrapped[1] if wrapped else output
    about = _ABOUT.search(text)
    if isinstance(display, str) and text.startswith(f"{_OUTPUT}{display}\n"):
        # Shown without the lines about it: an output that ends with such lines is not cut short.
        about = _ABOUT.match(text, len(_OUTPUT) + len(display)) or about
    if about is None:
        return text, None
    told = text[: about.start()].removeprefix(_OUTPUT)
    ended = about["error"] is None and about["signal"] is None
    code = int(about["code"]) if about["code"] else 0 if ended else None
    return ("" if told == _EMPTY else told), code


def _changes(display: Any) -> Iterator[Change]:
    if isinstance(display, dict) and isinstance(display.get("fileDiff"), str):
        path = display.get("filePath") or display.get("fileName")
        new = display.get("isNewFile") is True
        if isinstance(path, str):
            yield Change(path, "created" if new else "edited", display["fileDiff"])


def redacted_truth(truth: Truth, redactor: Redactor) -> Truth:
    """Without secrets where there is free text: a secret that reads `cancelled` must not take a status away."""
    if not redactor:
        return truth
    text = redactor.text
    return msgspec.structs.replace(
        truth,
        output=None if truth.output is None else text(truth.output),
        error=None if truth.error is None else text(truth.error),
        input=redactor.value(truth.input),
        changes=tuple(
            Change(text(one.path), one.kind, None if one.diff is None else text(one.diff))
            for one in truth.changes
        ),
    )


def with_truth(finished: ToolFinished, truth: Truth) -> ToolFinished:
    """The stream's event with what only the journal knows; what the stream knows better stays."""
    if finished.status == "denied":
        known = truth.input if finished.input is None else finished.input
        return msgspec.structs.replace(finished, input=known)
    failed = finished.status == "failed"
    return msgspec.structs.replace(
        finished,
        input=truth.input if finished.input is None else finished.input,
        status=truth.status or finished.status,
        output=finished.output if truth.output is None else truth.output,
        error=(finished.error or truth.error) if failed else finished.error,
        exit_code=truth.exit_code,
        changes=truth.changes,
    )


class JournalTranslator:
    """Translates the messages of one journal, each of which is written again when more of it is known.

    With a `parent`, the call of the subagent whose journal this is, tools become events too: the stream has none.
    """

    def __init__(
        self, numbers: EventNumbers, redactor: Redactor, *, parent: str | None = None, turn: int = 1
    ) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._parent = parent
        self._turn = turn
        self._last: _Told | None = None
        self._told: dict[str, _Told] = {}
        self._role: Role = "main" if parent is None else "subagent"

    def translate(self, message: Message) -> tuple[list[Event], dict[str, Truth]]:
        """The events that are new, and the truths of tool calls that are over."""
        if message.type != "gemini":
            return [], {}
        told = self._told.get(message.id) or self._begin(message.id)
        events: list[Event] = [*self._thoughts(message, told), *self._tokens(message, told)]
        truths: dict[str, Truth] = {}
        for call in message.tool_calls:
            truth = truth_of(call)
            if truth is None or call.id in told.calls:
                continue
            told.calls.add(call.id)
            truth = truths[call.id] = redacted_truth(truth, self._redactor)
            if self._parent is not None:
                events += self._tool(call, truth, told)
        return events, truths

    def _begin(self, message_id: str) -> _Told:
        """A message that is new. As in the stream, a turn is over when tools have given results."""
        if self._parent is None and self._last is not None and self._last.calls:
            self._turn += 1
        told = self._last = self._told[message_id] = _Told(self._turn)
        return told

    def _thoughts(self, message: Message, told: _Told) -> Iterator[Event]:
        for thought in message.thoughts[told.thoughts :]:
            told.thoughts += 1
            yield Thought(
                **self._common(thought.timestamp or message.timestamp, told),
                subject=self._redactor.text(thought.subject) or None,
                text=self._redactor.text(thought.description),
                parent=self._parent,
            )

    def _tokens(self, message: Message, told: _Told) -> Iterator[Event]:
        tokens = message.tokens
        if tokens is None or told.tokens or self._numbers.has_gateway:
            return
        told.tokens = True
        yield TokensUsed(
            at=at_of(message.timestamp),
            seq=self._numbers.next(),
            attempt=self._numbers.attempt,
            turn=told.turn,
            model=message.model,
            role=self._role,
            input=tokens.input,
            cached=tokens.cached,
            output=tokens.output,
            thinking=tokens.thoughts,
            tool=tokens.tool,
        )

    def _tool(self, call: ToolCall, truth: Truth, told: _Told) -> Iterator[Event]:
        """A subagent's call, told when it is over: the journal does not have it before."""
        arguments = self._redactor.value(call.args)
        yield ToolStarted(
            **self._common(call.timestamp, told),
            id=call.id,
            name=call.name,
            kind=tools.kind_of(call.name),
            title=tools.title_of(call.name, arguments),
            input=arguments,
            paths=tools.paths_of(arguments),
            parent=self._parent,
        )
        yield ToolFinished(
            **self._common(call.timestamp, told),
            id=call.id,
            name=call.name,
            input=arguments,
            status=truth.status or ("failed" if call.status == "error" else "ok"),
            output=truth.output,
            error=truth.error,
            exit_code=truth.exit_code,
            changes=truth.changes,
            parent=self._parent,
        )

    def _common(self, stamp: str, told: _Told) -> dict[str, Any]:
        return {
            "at": at_of(stamp),
            "seq": self._numbers.next(),
            "attempt": self._numbers.attempt,
            "turn": told.turn,
        }


class _Told:
    """What has been told of one message."""

    __slots__ = ("calls", "thoughts", "tokens", "turn")

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.thoughts = 0
        self.tokens = False
        self.calls: set[str] = set()


def at_of(stamp: str) -> int:
    """A time as the CLI writes it in Unix ms, 0 for what is none.

    >>> at_of("2026-11-16T03:27:52.123Z"), at_of("soon")
    (1794799672123, 0)
    """
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
