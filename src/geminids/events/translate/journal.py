"""Translate a session journal into what the stream omits: thoughts, tokens, results of tools."""

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
# The shell tool sends the model the output, then status lines, each at most once and in this order
# (core/src/tools/shell.ts). The output may contain such lines too: only those at its very end are
# the tool's.
_OUTPUT = "Output: "
_STATUS_LINES = re.compile(
    r"(?P<error>\nError: [^\n]*)?(?:\nExit Code: (?P<code>-?\d+))?(?P<signal>\nSignal: [^\n]*)?"
    r"(?:\nBackground PIDs: [^\n]*)?\nProcess Group PGID: \d+\Z"
)
_EMPTY = "(empty)"
# The CLI reports a cancelled command as a success with this text. Output of the command itself
# follows `Output: `, so it cannot match.
_CANCELLED = re.compile(r"(<untrusted_context>\n)?Command was cancelled by user before it could complete\.")
_GROUP = re.compile(r"\nProcess Group PGID: (\d+)(?:\n</untrusted_context>)?\Z")


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call, as the model received it."""

    output: str | None = None
    error: str | None = None
    status: ToolStatus | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] = ()
    agent_id: str | None = None
    input: dict[str, Any] | None = None
    """The arguments of the call. stream-json has them too, ACP does not."""
    group: int | None = None
    """The process group that a shell command ran in."""


def truth_of(call: ToolCall) -> Truth | None:
    """Return the result of a call; None while the tool runs."""
    response = _response(call)
    if response is None and call.status not in ("error", "cancelled"):
        return None
    output, error = _text(response, "output"), _text(response, "error")
    exit_code = group = None
    cancelled = call.status == "cancelled"
    if call.name == "run_shell_command" and output is not None:
        cancelled = cancelled or _CANCELLED.match(output) is not None
        match = _GROUP.search(output)
        group = int(match[1]) if match else None
        output, exit_code = _split_shell_output(output, call.result_display)
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
    """Return the response to this call. Parallel calls each contain the responses of all (0.61.0)."""
    entries = [
        entry
        for part in (call.result if isinstance(call.result, list) else ())
        if isinstance(part, dict) and isinstance(entry := part.get("functionResponse"), dict)
    ]
    own = [entry for entry in entries if entry.get("id") == call.id]
    responses = [entry.get("response") for entry in own or entries[:1]]
    return next((response for response in responses if isinstance(response, dict)), None)


def _text(response: Mapping[str, Any] | None, name: str) -> str | None:
    value = response.get(name) if response is not None else None
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _split_shell_output(output: str, display: Any) -> tuple[str, int | None]:
    """Return the output without status lines, and the exit code.

    The CLI omits exit code 0, but it always adds the process group when a command ended.
    """
    wrapped = _WRAPPED.match(output)
    text = wrapped[1] if wrapped else output
    status = _STATUS_LINES.search(text)
    if isinstance(display, str) and text.startswith(f"{_OUTPUT}{display}\n"):
        # The display has no status lines: use it to keep an output that itself ends with such lines.
        status = _STATUS_LINES.match(text, len(_OUTPUT) + len(display)) or status
    if status is None:
        return text, None
    command_output = text[: status.start()].removeprefix(_OUTPUT)
    ended = status["error"] is None and status["signal"] is None
    code = int(status["code"]) if status["code"] else 0 if ended else None
    return ("" if command_output == _EMPTY else command_output), code


def _changes(display: Any) -> Iterator[Change]:
    if isinstance(display, dict) and isinstance(display.get("fileDiff"), str):
        path = display.get("filePath") or display.get("fileName")
        new = display.get("isNewFile") is True
        if isinstance(path, str):
            yield Change(path, "created" if new else "edited", display["fileDiff"])


def redacted_truth(truth: Truth, redactor: Redactor) -> Truth:
    """Mask secrets in free text only: a secret that equals `cancelled` must not mask a status."""
    if not redactor:
        return truth
    text = redactor.text
    return msgspec.structs.replace(
        truth,
        output=None if truth.output is None else text(truth.output),
        error=None if truth.error is None else text(truth.error),
        input=redactor.value(truth.input),
        changes=tuple(
            Change(text(change.path), change.kind, None if change.diff is None else text(change.diff))
            for change in truth.changes
        ),
    )


def with_truth(finished: ToolFinished, truth: Truth) -> ToolFinished:
    """Add to the stream's event what only the journal has. Better values of the stream stay."""
    if finished.status == "denied":
        arguments = truth.input if finished.input is None else finished.input
        return msgspec.structs.replace(finished, input=arguments)
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
    """Translates the messages of one journal. The CLI writes a message again when it has more of it.

    `parent` is the call that started a subagent, if this is a subagent's journal. Its tools become
    events too, because the stream does not have them.
    """

    def __init__(
        self, numbers: EventNumbers, redactor: Redactor, *, parent: str | None = None, turn: int = 1
    ) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._parent = parent
        self._turn = turn
        self._last: _Emitted | None = None
        self._emitted: dict[str, _Emitted] = {}
        self._role: Role = "main" if parent is None else "subagent"

    def translate(self, message: Message) -> tuple[list[Event], dict[str, Truth]]:
        """Return the new events, and the `Truth` of each tool call that ended."""
        if message.type != "gemini":
            return [], {}
        emitted = self._emitted.get(message.id) or self._begin(message.id)
        events: list[Event] = [*self._thoughts(message, emitted), *self._tokens(message, emitted)]
        truths: dict[str, Truth] = {}
        for call in message.tool_calls:
            truth = truth_of(call)
            if truth is None or call.id in emitted.calls:
                continue
            emitted.calls.add(call.id)
            truth = truths[call.id] = redacted_truth(truth, self._redactor)
            if self._parent is not None:
                events += self._tool(call, truth, emitted)
        return events, truths

    def _begin(self, message_id: str) -> _Emitted:
        """Start a new message. As in the stream, a turn ends with the results of its tools."""
        if self._parent is None and self._last is not None and self._last.calls:
            self._turn += 1
        emitted = self._last = self._emitted[message_id] = _Emitted(self._turn)
        return emitted

    def _thoughts(self, message: Message, emitted: _Emitted) -> Iterator[Event]:
        for thought in message.thoughts[emitted.thoughts :]:
            emitted.thoughts += 1
            yield Thought(
                **self._common(thought.timestamp or message.timestamp, emitted),
                subject=self._redactor.text(thought.subject) or None,
                text=self._redactor.text(thought.description),
                parent=self._parent,
            )

    def _tokens(self, message: Message, emitted: _Emitted) -> Iterator[Event]:
        tokens = message.tokens
        if tokens is None or emitted.tokens or self._numbers.has_gateway:
            return
        emitted.tokens = True
        yield TokensUsed(
            at=at_of(message.timestamp),
            seq=self._numbers.next(),
            attempt=self._numbers.attempt,
            turn=emitted.turn,
            model=message.model,
            role=self._role,
            input=tokens.input,
            cached=tokens.cached,
            output=tokens.output,
            thinking=tokens.thoughts,
            tool=tokens.tool,
        )

    def _tool(self, call: ToolCall, truth: Truth, emitted: _Emitted) -> Iterator[Event]:
        """Emit a subagent's call when it has ended: the journal does not have it earlier."""
        arguments = self._redactor.value(call.args)
        yield ToolStarted(
            **self._common(call.timestamp, emitted),
            id=call.id,
            name=call.name,
            kind=tools.kind_of(call.name),
            title=tools.title_of(call.name, arguments),
            input=arguments,
            paths=tools.paths_of(arguments),
            parent=self._parent,
        )
        yield ToolFinished(
            **self._common(call.timestamp, emitted),
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

    def _common(self, stamp: str, emitted: _Emitted) -> dict[str, Any]:
        return {
            "at": at_of(stamp),
            "seq": self._numbers.next(),
            "attempt": self._numbers.attempt,
            "turn": emitted.turn,
        }


class _Emitted:
    """What was emitted for one message."""

    __slots__ = ("calls", "thoughts", "tokens", "turn")

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.thoughts = 0
        self.tokens = False
        self.calls: set[str] = set()


def at_of(stamp: str) -> int:
    """Convert a timestamp of the CLI to Unix ms; 0 if it is not a timestamp.

    >>> at_of("2026-11-16T03:27:52.123Z"), at_of("soon")
    (1794799672123, 0)
    """
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
