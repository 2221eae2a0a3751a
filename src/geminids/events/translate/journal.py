"""Translate the journal (the session file of the CLI) into the events that the CLI's stream-json
output lacks: thoughts, tokens and details of tool results.
"""

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
from geminids.gemini.protocol.journal.records import StoredMessage, StoredToolCall
from geminids.redact import Redactor

__all__ = [
    "JournalTranslator",
    "ToolRecord",
    "at_of",
    "redact_tool_record",
    "tool_record_of",
    "with_tool_record",
]

_WRAPPED = re.compile(r"\A<untrusted_context>\n(.*)\n</untrusted_context>\Z", re.DOTALL)
# After the output, the shell tool sends status lines to the model, each at most once and in this
# order (core/src/tools/shell.ts). The output itself may contain such lines too. Only lines at the
# very end come from the tool.
_OUTPUT = "Output: "
_STATUS_LINES = re.compile(
    r"(?P<error>\nError: [^\n]*)?(?:\nExit Code: (?P<code>-?\d+))?(?P<signal>\nSignal: [^\n]*)?"
    r"(?:\nBackground PIDs: [^\n]*)?\nProcess Group PGID: \d+\Z"
)
_EMPTY = "(empty)"
# The CLI reports a cancelled command as a success with this text. The output of a command comes
# after `Output: `, so an output cannot match this pattern.
_CANCELLED = re.compile(r"(<untrusted_context>\n)?Command was cancelled by user before it could complete\.")
_GROUP = re.compile(r"\nProcess Group PGID: (\d+)(?:\n</untrusted_context>)?\Z")


class ToolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call as the model received it. It is read from the journal (the session
    file of the CLI).

    `status` is `cancelled` if the call was cancelled, and otherwise None. If the call started a
    subagent, `agent_id` is the id of this subagent.
    """

    output: str | None = None
    error: str | None = None
    status: ToolStatus | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] = ()
    agent_id: str | None = None
    input: dict[str, Any] | None = None
    """The arguments of the tool call. The stream-json output contains them too; ACP updates do not."""
    group: int | None = None
    """The process group in which a shell command ran."""


def tool_record_of(call: StoredToolCall) -> ToolRecord | None:
    """Return the result of a tool call that was read from the journal (the session file of the
    CLI). Return None if the tool is still running.
    """
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
    return ToolRecord(
        output=output,
        error=error,
        status="cancelled" if cancelled else None,
        exit_code=exit_code,
        changes=tuple(_changes(call.result_display)),
        agent_id=call.agent_id,
        input=call.args if isinstance(call.args, dict) else None,
        group=group,
    )


def _response(call: StoredToolCall) -> Mapping[str, Any] | None:
    """Return the tool's response to this call; None if there is none.

    In CLI 0.61.0, each of several parallel calls contains the responses of all of them. Therefore
    the response is found by the id of the call.
    """
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
    """Split the text that the shell tool sends to the model. Return the command's output without
    the status lines at its end, and the exit code. The exit code is None if the command did not end
    normally.

    `display` is the output that the CLI shows to the user. When a command has ended, the CLI always
    adds a status line with the process group. It leaves out the line with the exit code if the code
    is 0.
    """
    wrapped = _WRAPPED.match(output)
    text = wrapped[1] if wrapped else output
    status = _STATUS_LINES.search(text)
    if isinstance(display, str) and text.startswith(f"{_OUTPUT}{display}\n"):
        # The output that the CLI shows to the user has no status lines. It shows where the
        # command's own output ends, even if that output looks like status lines.
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


def redact_tool_record(record: ToolRecord, redactor: Redactor) -> ToolRecord:
    """Return the tool result with secrets masked in its texts. Fields such as `status` are not
    masked: if a secret were the word `cancelled`, the status would be lost.
    """
    if not redactor:
        return record
    text = redactor.text
    return msgspec.structs.replace(
        record,
        output=None if record.output is None else text(record.output),
        error=None if record.error is None else text(record.error),
        input=redactor.value(record.input),
        changes=tuple(
            Change(text(change.path), change.kind, None if change.diff is None else text(change.diff))
            for change in record.changes
        ),
    )


def with_tool_record(finished: ToolFinished, record: ToolRecord) -> ToolFinished:
    """Return the event `finished`, completed with the values of `record`, the journal's result of
    the same tool call.

    If the call was denied, only missing arguments are added. Otherwise:

    - The exit code and the changes are taken from the record.
    - The status and the output are taken from the record if it has them, otherwise from the event.
    - The arguments are taken from the event if it has them, otherwise from the record. The same is
      true of the error if the call failed.
    """
    if finished.status == "denied":
        arguments = record.input if finished.input is None else finished.input
        return msgspec.structs.replace(finished, input=arguments)
    failed = finished.status == "failed"
    return msgspec.structs.replace(
        finished,
        input=record.input if finished.input is None else finished.input,
        status=record.status or finished.status,
        output=finished.output if record.output is None else record.output,
        error=(finished.error or record.error) if failed else finished.error,
        exit_code=record.exit_code,
        changes=record.changes,
    )


class JournalTranslator:
    """Translates the messages of one journal (the session file of the CLI) into events. The CLI
    writes a message again when it has grown; only the new parts of the message become events.

    If the journal belongs to a subagent, `parent` is the id of the tool call that started the
    subagent. Then the tool calls become events too, because the CLI's output does not contain the
    tool calls of a subagent.
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

    def translate(self, message: StoredMessage) -> tuple[list[Event], dict[str, ToolRecord]]:
        """Translate one message of the journal. Return two values: the new events, and the results
        of the tool calls that have ended, as a map from call id to `ToolRecord`.
        """
        if message.type != "gemini":
            return [], {}
        emitted = self._emitted.get(message.id) or self._begin(message.id)
        events: list[Event] = [*self._thoughts(message, emitted), *self._tokens(message, emitted)]
        records: dict[str, ToolRecord] = {}
        for call in message.tool_calls:
            record = tool_record_of(call)
            if record is None or call.id in emitted.calls:
                continue
            emitted.calls.add(call.id)
            record = records[call.id] = redact_tool_record(record, self._redactor)
            if self._parent is not None:
                events += self._tool(call, record, emitted)
        return events, records

    def _begin(self, message_id: str) -> _Emitted:
        """Start a new message of the journal. If the previous message had tool calls, a new turn
        begins. `StreamTranslator` counts turns in the same way.
        """
        if self._parent is None and self._last is not None and self._last.calls:
            self._turn += 1
        emitted = self._last = self._emitted[message_id] = _Emitted(self._turn)
        return emitted

    def _thoughts(self, message: StoredMessage, emitted: _Emitted) -> Iterator[Event]:
        for thought in message.thoughts[emitted.thoughts :]:
            emitted.thoughts += 1
            yield Thought(
                **self._common(thought.timestamp or message.timestamp, emitted),
                subject=self._redactor.text(thought.subject) or None,
                text=self._redactor.text(thought.description),
                parent=self._parent,
            )

    def _tokens(self, message: StoredMessage, emitted: _Emitted) -> Iterator[Event]:
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

    def _tool(self, call: StoredToolCall, record: ToolRecord, emitted: _Emitted) -> Iterator[Event]:
        """Yield the two events of a subagent's tool call: its start and its end. Both events are
        yielded after the call has ended, because the journal contains the result only then.
        """
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
            status=record.status or ("failed" if call.status == "error" else "ok"),
            output=record.output,
            error=record.error,
            exit_code=record.exit_code,
            changes=record.changes,
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
    """Remembers the turn of one message of the journal, and which parts of the message were already
    emitted as events.
    """

    __slots__ = ("calls", "thoughts", "tokens", "turn")

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.thoughts = 0
        self.tokens = False
        self.calls: set[str] = set()


def at_of(stamp: str) -> int:
    """Convert a timestamp of the CLI to Unix milliseconds. Return 0 if `stamp` is not a timestamp.

    >>> at_of("2026-11-16T03:27:52.123Z"), at_of("soon")
    (1794799672123, 0)
    """
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
