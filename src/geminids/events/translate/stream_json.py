"""Translate lines of stream-json into events."""

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
    Init,
    Message,
    ResultLine,
    ToolResult,
    ToolUse,
    UnexpectedLine,
    WireLine,
    error_of,
    text_of,
)
from geminids.ids import is_session_id
from geminids.redact import Redactor, TextRedactor

__all__ = ["StreamTranslator", "WhyNot"]

# Returns why a tool call with these arguments is forbidden, or None if it is allowed.
WhyNot = Callable[[str, Mapping[str, Any]], str | None]

_MAX_SHOWN = 2000
_MAX_ERRORS = 200
_LOOP = "Loop detected"
_MS = {f"{ms:03}Z": ms for ms in range(1000)}


class StreamTranslator:
    """Translates the lines of one attempt. Keeps the lines that decide its outcome."""

    def __init__(self, numbers: EventNumbers, redactor: Redactor, why_not: WhyNot | None = None) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._why_not = why_not
        self._text = TextRedactor(redactor) if redactor else None
        self._open: dict[str, ToolStarted] = {}
        self._new_turn = False
        self._second = ""
        self._second_ms = 0
        self.init: Init | None = None
        self.result: ResultLine | None = None
        self.errors: list[ErrorLine] = []
        # For the journal reader: how many tools ended, and the turn of each subagent call.
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
        """The running tools, in the order of their start."""
        return tuple(self._open.values())

    def translate(self, lines: Sequence[WireLine | UnexpectedLine]) -> list[Event]:
        """Return the events of these lines. Never raises, whatever the lines contain."""
        out: list[Event] = []
        redactor = self._text
        if redactor is not None:
            # Not the user's messages: they are no part of the text, and would break a secret in two.
            pieces = [line.content for line in lines if type(line) is Message and line.role == "assistant"]
            if redactor.is_clear("".join(pieces)):
                # Search the whole text once: most blocks contain no secret, and their pieces need no search.
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
        """Translate pieces of text up to the first other line, and return that line.

        This is the hot path, so it calls few functions: it handles close to a million pieces a second.
        """
        add = out.append
        numbers = self._numbers
        attempt, seq = numbers.attempt, numbers.seq
        second, second_ms = self._second, self._second_ms
        for line in lines:
            if type(line) is not Message or line.role != "assistant":
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
        """Return the line with secrets masked in its free-text fields."""
        clean = {name: self._redactor.value(getattr(line, name)) for name in free_fields}
        return msgspec.structs.replace(line, **clean) if clean else line

    def finish(self) -> list[Event]:
        """The stream ended: emit text that was held back, and end open tools as `cancelled`."""
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

    def _on_init(self, line: Init, out: list[Event]) -> None:
        if self.init is not None:
            out.append(self._numbers.notice("warning", "protocol", "the CLI announced a session twice"))
        else:
            # The CLI has loaded and calls the model next.
            clean = self._redactor.text
            session_id = clean(line.session_id or "")
            start = SessionStart(session_id, line.model and clean(line.model))
            message = clean(f"session {line.session_id}, model {line.model}")
            session = start if is_session_id(session_id) else None
            out.append(self._numbers.notice("debug", "session", message, session=session))
        self.init = line

    def _on_message(self, line: Message, out: list[Event]) -> None:
        if line.role == "user":
            return  # the echo of our own prompt
        shown = _short(line.content)
        out.append(self._numbers.notice("info", "unknown_role", f"a message of role {line.role!r}: {shown}"))

    def _on_tool_use(self, line: ToolUse, out: list[Event]) -> None:
        if line.tool_id in self._open:
            out.append(self._numbers.notice("warning", "protocol", f"tool call {line.tool_id!r} began twice"))
            return
        # Only a tool ends a text. Other lines between two pieces do not: a secret may span them.
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

    def _on_tool_result(self, line: ToolResult, out: list[Event]) -> None:
        self._new_turn = True
        started = self._open.pop(line.tool_id, None)
        output = None if line.output is None else text_of(line.output)
        if started is None:
            text = f"a result for a tool call that never began ({line.tool_id!r}): {_short(output or '')}"
            out.append(self._numbers.notice("warning", "protocol", text))
            return
        self._flush(out)
        error_type, message = error_of(line.error) or (None, None)
        status = tools.status_of(line.status, error_type, message, output)
        # "Blocked: ..." is the output of a successful call and contains the reason.
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
            del self.errors[_MAX_ERRORS // 2]  # keep the first and the last ones: they show the cause
        level = "error" if line.severity == "error" else "warning"
        code = "loop" if _LOOP in line.message else "cli"
        out.append(self._numbers.notice(level, code, _short(line.message)))  # type: ignore[arg-type]

    def _on_result(self, line: ResultLine, out: list[Event]) -> None:
        if self.result is not None:
            out.append(self._numbers.notice("warning", "protocol", "the CLI gave a second result"))
        self.result = line

    def _on_odd(self, line: UnexpectedLine, out: list[Event]) -> None:
        level = "info" if line.why in ("noise", "unknown_event") else "warning"
        out.append(self._numbers.notice(level, line.why, _short(line.line)))  # type: ignore[arg-type]

    def _ms(self, stamp: str) -> int:
        """Convert `2026-11-16T03:27:52.123Z` to Unix ms; the current time if it is not a timestamp."""
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


# The handler of each line type, and its fields with free text or values. Ids, names and roles are
# not redacted: a secret that equals one of them must not mask it.
_HANDLERS: dict[type, tuple[Any, ...]] = {
    Init: (StreamTranslator._on_init,),
    Message: (StreamTranslator._on_message, "content"),
    ToolUse: (StreamTranslator._on_tool_use, "parameters"),
    ToolResult: (StreamTranslator._on_tool_result, "output", "error"),
    ErrorLine: (StreamTranslator._on_error, "message"),
    ResultLine: (StreamTranslator._on_result, "error"),
    UnexpectedLine: (StreamTranslator._on_odd, "line"),
}


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"
