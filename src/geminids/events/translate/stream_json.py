"""Translate lines of the CLI's stream-json output (one JSON object per line) into events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from geminids.events.model import Event, SessionStart, Text, ToolFinished, ToolStarted
from geminids.events.numbering import EventNumbers
from geminids.gemini.protocol import tool_results as tools
from geminids.gemini.protocol.stream_json import (
    ErrorLine,
    InitLine,
    MessageLine,
    ResultLine,
    ToolResultLine,
    ToolUseLine,
    UnexpectedLine,
    WireLine,
    error_of,
    text_of,
)
from geminids.ids import is_session_id
from geminids.redact import Redactor, TextRedactor

__all__ = ["StreamTranslator", "WhyNot"]

# A function that returns why a call of this tool with these arguments is forbidden; None if it is
# allowed.
WhyNot = Callable[[str, Mapping[str, Any]], str | None]

_MAX_SHOWN = 2000
_MAX_ERRORS = 200
_LOOP = "Loop detected"
_MS = {f"{ms:03}Z": ms for ms in range(1000)}


class StreamTranslator:
    """Translates the stream-json lines of one attempt into events, and stores the lines that decide
    the outcome of the attempt.

    `why_not` is a function that returns why a tool call is forbidden; None if the call is allowed.
    """

    def __init__(self, numbers: EventNumbers, redactor: Redactor, why_not: WhyNot | None = None) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._why_not = why_not
        self._text = TextRedactor(redactor) if redactor else None
        self._open: dict[str, ToolStarted] = {}
        self._new_turn = False
        self._second = ""
        self._second_ms = 0
        self.init: InitLine | None = None
        self.result: ResultLine | None = None
        self.errors: list[ErrorLine] = []
        # The reader of the journal uses these: the number of tools that have ended, and the turn of
        # each call that started a subagent.
        self.tools_ended = 0
        self.agent_turns: dict[str, int] = {}

    @property
    def session_id(self) -> str | None:
        return self.init.session_id if self.init is not None else None

    @property
    def tools_running(self) -> bool:
        return bool(self._open)

    @property
    def running(self) -> tuple[ToolStarted, ...]:
        """The tool calls that are running, in the order of their start."""
        return tuple(self._open.values())

    def translate(self, lines: Sequence[WireLine | UnexpectedLine]) -> list[Event]:
        """Return the events of these lines of the CLI's output. This method never raises, even for
        invalid lines.
        """
        out: list[Event] = []
        redactor = self._text
        if redactor is not None:
            # Leave out the user's messages: they do not belong to the text, and could split a
            # secret.
            pieces = [
                line.content for line in lines if type(line) is MessageLine and line.role == "assistant"
            ]
            if redactor.is_clear("".join(pieces)):
                # Most blocks of lines contain no secret. After this one search, the single pieces
                # need no search.
                self._flush(out)
                redactor = None
        remaining = iter(lines)
        while (line := self._translate_text(remaining, out, redactor)) is not None:
            handler, *free_fields = _HANDLERS[type(line)]
            handler(self, self._redacted(line, free_fields) if self._redactor else line, out)
        return out

    def _translate_text(
        self, lines: Iterator[WireLine | UnexpectedLine], out: list[Event], redactor: TextRedactor | None
    ) -> WireLine | UnexpectedLine | None:
        """Translate lines that are pieces of text, and append the events to `out`. Stop at the
        first line of another kind, and return that line. Return None if there is no such line. If
        `redactor` is None, the text is not redacted.

        This code must be fast, so it calls few functions. It translates almost a million pieces per
        second.
        """
        add = out.append
        numbers = self._numbers
        attempt, seq = numbers.attempt, numbers.seq
        second, second_ms = self._second, self._second_ms
        for line in lines:
            if type(line) is not MessageLine or line.role != "assistant":
                numbers.seq = seq
                return line
            if self._new_turn:
                self._begin_turn()
            text = line.content if redactor is None else redactor.feed(line.content)
            if text:
                stamp = line.timestamp
                try:
                    at = second_ms + _MS[stamp[20:]] if stamp[:20] == second else self._ms(stamp)
                except KeyError:
                    at = self._ms(stamp)
                second, second_ms = self._second, self._second_ms
                add(Text(at=at, seq=seq, attempt=attempt, turn=numbers.turn, text=text))
                seq += 1
        numbers.seq = seq
        return None

    def _redacted(
        self, line: WireLine | UnexpectedLine, free_fields: Sequence[str]
    ) -> WireLine | UnexpectedLine:
        """Return the line with secrets masked in the fields named in `free_fields`. These fields
        contain free text.
        """
        clean = {name: self._redactor.value(getattr(line, name)) for name in free_fields}
        return msgspec.structs.replace(line, **clean) if clean else line

    def finish(self) -> list[Event]:
        """Return the last events of the stream. They contain:

        - the text that was held back because it could be the start of a secret;
        - the end of each tool call that is still running, with the status `cancelled`.
        """
        out: list[Event] = []
        self._flush(out)
        out += [self._finished(started, self._now(), status="cancelled") for started in self._open.values()]
        self._open.clear()
        return out

    def _flush(self, out: list[Event]) -> None:
        held = self._text.flush() if self._text is not None else ""
        if held:
            numbers = self._numbers
            out.append(
                Text(
                    at=self._now(), seq=numbers.next(), attempt=numbers.attempt, turn=numbers.turn, text=held
                )
            )

    def _begin_turn(self) -> None:
        self._new_turn = False
        self._numbers.turn += 1

    def _on_init(self, line: InitLine, out: list[Event]) -> None:
        if self.init is not None:
            out.append(self._numbers.notice("warning", "protocol", "the CLI announced a session twice"))
        else:
            # The CLI has started, and calls the model next.
            clean = self._redactor.text
            session_id = clean(line.session_id or "")
            start = SessionStart(session_id, line.model and clean(line.model))
            message = clean(f"session {line.session_id}, model {line.model}")
            session = start if is_session_id(session_id) else None
            out.append(self._numbers.notice("debug", "session", message, session=session))
        self.init = line

    def _on_message(self, line: MessageLine, out: list[Event]) -> None:
        if line.role == "user":
            return  # the CLI repeats our own prompt
        shown = _short(line.content)
        out.append(
            self._numbers.notice(
                "info", "unknown_role", f"the CLI sent a message with the unknown role {line.role!r}: {shown}"
            )
        )

    def _on_tool_use(self, line: ToolUseLine, out: list[Event]) -> None:
        if line.tool_id in self._open:
            out.append(
                self._numbers.notice(
                    "warning", "protocol", f"the CLI started tool call {line.tool_id!r} twice"
                )
            )
            return
        # Only a tool call ends a text. Other lines do not end it, because a secret may continue
        # after them.
        self._flush(out)
        if self._new_turn:
            self._begin_turn()
        parameters = line.parameters if isinstance(line.parameters, dict) else {}
        started = ToolStarted(
            at=self._ms(line.timestamp),
            seq=self._numbers.next(),
            attempt=self._numbers.attempt,
            turn=self._numbers.turn,
            id=line.tool_id,
            name=line.tool_name,
            kind=tools.kind_of(line.tool_name),
            title=tools.title_of(line.tool_name, parameters),
            input=parameters,
            paths=tools.paths_of(parameters),
        )
        self._open[line.tool_id] = started
        if started.kind == "agent":
            self.agent_turns[started.id] = started.turn
        out.append(started)

    def _on_tool_result(self, line: ToolResultLine, out: list[Event]) -> None:
        self._new_turn = True
        started = self._open.pop(line.tool_id, None)
        output = None if line.output is None else text_of(line.output)
        if started is None:
            shown = _short(output or "")
            text = f"the CLI sent a result for a tool call that it never started ({line.tool_id!r}): {shown}"
            out.append(self._numbers.notice("warning", "protocol", text))
            return
        self._flush(out)
        error_type, message = error_of(line.error) or (None, None)
        status = tools.status_of(line.status, error_type, message, output)
        # If the tool call succeeded with the output "Blocked: ...", `message` is None, and the
        # output contains the reason.
        refused = error_type in tools.NOT_REGISTERED or (status == "denied" and message is not None)
        if refused and self._why_not is not None:
            why = self._why_not(started.name, started.input or {})
            if why is not None:
                status, message = "denied", tools.denial_text(why, message or output)
        if status == "denied" and message is None:
            message = output
        out.append(
            self._finished(started, self._ms(line.timestamp), status=status, output=output, error=message)
        )

    def _finished(self, started: ToolStarted, at: int, **fields: Any) -> ToolFinished:
        self.tools_ended += 1
        return ToolFinished(
            at=at,
            seq=self._numbers.next(),
            attempt=started.attempt,
            turn=started.turn,
            id=started.id,
            name=started.name,
            input=started.input,
            duration_ms=max(0, at - started.at),
            parent=started.parent,
            **fields,
        )

    def _on_error(self, line: ErrorLine, out: list[Event]) -> None:
        self.errors.append(line)
        if len(self.errors) > _MAX_ERRORS:
            del self.errors[_MAX_ERRORS // 2]  # keep the first and the last: they show the cause
        level = "error" if line.severity == "error" else "warning"
        code = "loop" if _LOOP in line.message else "cli"
        out.append(self._numbers.notice(level, code, _short(line.message)))  # type: ignore[arg-type]

    def _on_result(self, line: ResultLine, out: list[Event]) -> None:
        if self.result is not None:
            out.append(self._numbers.notice("warning", "protocol", "the CLI sent a second `result` line"))
        self.result = line

    def _on_odd(self, line: UnexpectedLine, out: list[Event]) -> None:
        level = "info" if line.why in ("noise", "unknown_event") else "warning"
        out.append(self._numbers.notice(level, line.why, _short(line.line)))  # type: ignore[arg-type]

    def _ms(self, stamp: str) -> int:
        """Convert a timestamp such as `2026-11-16T03:27:52.123Z` to Unix milliseconds. If `stamp`
        is not a timestamp, return the current time.
        """
        try:
            if stamp[:20] != self._second:
                parsed = datetime.fromisoformat(stamp[:19] + "+00:00")
                self._second_ms = int(parsed.timestamp()) * 1000
                self._second = stamp[:20]
            return self._second_ms + (int(stamp[20:23]) if stamp[19:20] == "." else 0)
        except (ValueError, OverflowError):
            self._second = ""
            return self._now()

    @staticmethod
    def _now() -> int:
        return int(time.time() * 1000)


# The handler of each type of line, and the names of its fields with free text or values. Ids, names
# and roles are not redacted, even if a secret is equal to one of them.
_HANDLERS: dict[type, tuple[Any, ...]] = {
    InitLine: (StreamTranslator._on_init,),
    MessageLine: (StreamTranslator._on_message, "content"),
    ToolUseLine: (StreamTranslator._on_tool_use, "parameters"),
    ToolResultLine: (StreamTranslator._on_tool_result, "output", "error"),
    ErrorLine: (StreamTranslator._on_error, "message"),
    ResultLine: (StreamTranslator._on_result, "error"),
    UnexpectedLine: (StreamTranslator._on_odd, "line"),
}


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"
