"""A run as the events of Untether's runners: `started`, actions, and one `completed` at the end."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import UNSET

from geminids.dialects.untether.model import (
    ENGINE,
    Action,
    ActionEvent,
    Changed,
    CompletedEvent,
    Detail,
    Meta,
    RunUsage,
    StartedEvent,
    TokenUsage,
    UntetherEvent,
    encode_untether_event,
)
from geminids.dialects.untether.tools import kind_and_title, path_in
from geminids.events.model import (
    Event,
    Finished,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)
from geminids.sessions.resume_token import ResumeToken, extract_resume_token, format_resume_line

__all__ = [
    "Action",
    "ActionEvent",
    "CompletedEvent",
    "Encoder",
    "ResumeToken",
    "StartedEvent",
    "Translator",
    "UntetherEvent",
    "encode_untether_event",
    "error_of",
    "exited_without_result",
    "extract_resume_token",
    "format_resume_line",
    "translate",
]

_PREVIEW = 500
# Notices about lines that are not events of the CLI; reported at any level.
_BAD_LINES = {
    "noise",
    "unknown_event",
    "unknown_role",
    "unknown_update",
    "protocol",
    "encoding",
    "line_too_long",
}
_MODES = {"yolo": "full access", "auto_edit": "edit files"}


def translate(events: Iterable[Event]) -> Iterator[UntetherEvent]:
    """Translate a whole run to Untether's events.

    >>> from geminids.events.model import Text
    >>> list(translate([Text(at=0, seq=0, attempt=1, turn=1, text="half of it")]))[-1].answer
    'half of it'
    """
    translator = Translator()
    for event in events:
        yield from translator.feed((event,))
    yield from translator.finish()


class Encoder:
    """Encodes Untether's events as lines of JSON."""

    def __init__(self) -> None:
        self._translator = Translator()

    def feed(self, events: Sequence[Event]) -> bytes:
        return _lines(self._translator.feed(events))

    def finish(self) -> bytes:
        return _lines(self._translator.finish())


def _lines(events: Iterable[UntetherEvent]) -> bytes:
    return b"".join(encode_untether_event(event) + b"\n" for event in events)


class Translator:
    """Translates the events of one run."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._session_id: str | None = None
        self._model: str | None = None
        self._text = io.StringIO(newline="")
        self._has_emitted_started = False
        self._has_emitted_completed = False
        self._notes = 0
        self._open: dict[str, ToolStarted] = {}
        self._commands: dict[str, str] = {}

    def feed(self, events: Iterable[Event]) -> list[UntetherEvent]:
        out: list[UntetherEvent] = []
        if self._has_emitted_completed:
            return out
        add_text = self._text.write
        for event in events:
            kind = type(event)
            if kind is Text:
                add_text(event.text)  # type: ignore[attr-defined]
            elif kind is Finished:
                self._on_finished(event, out)  # type: ignore[arg-type]
                break
            elif (handler := _HANDLERS.get(kind)) is not None:
                handler(self, event, out)
                add_text = self._text.write
        return out

    def finish(self) -> list[UntetherEvent]:
        """Return the missing `completed` event if no `Finished` came."""
        if self._has_emitted_completed:
            return []
        self._has_emitted_completed = True
        error = "gemini: the events end before the run does"
        return [
            CompletedEvent(
                ok=False, answer=self._text.getvalue(), resume=self._token(self._session_id), error=error
            )
        ]

    def _on_started(self, event: Started, out: list[UntetherEvent]) -> None:
        self._started = event
        self._session_id = event.session_id or self._session_id
        self._model = event.model or self._model
        self._text = io.StringIO(newline="")

    def _on_notice(self, event: Notice, out: list[UntetherEvent]) -> None:
        if event.code == "session":
            # The CLI has loaded: Untether's start of a run.
            if (session := event.session) is not None:
                self._session_id, self._model = session.session_id, session.model or self._model
            self._emit_started(event, out)
        elif event.code in _BAD_LINES:
            detail = Detail(code=event.code, line=event.message)
            out.append(self._note(event.message, detail, "warning"))
        elif event.level in ("warning", "error"):
            out.append(self._note(event.message, Detail(code=event.code), event.level))

    def _emit_started(self, event: Event, out: list[UntetherEvent]) -> None:
        """Emit `started` once, when the session is known."""
        if self._has_emitted_started or not self._session_id:
            return
        self._has_emitted_started = True
        started, model = self._started, self._model
        mode = _MODES.get(started.approval or "") if started else None
        meta = Meta(
            model=model or UNSET, pid=started.pid if started else UNSET, permission_mode=mode or UNSET
        )
        token = ResumeToken(ENGINE, self._session_id)
        out.append(StartedEvent(resume=token, meta=None if meta == Meta() else meta))

    def _on_tool_started(self, event: ToolStarted, out: list[UntetherEvent]) -> None:
        self._emit_started(event, out)
        if not event.id:
            return
        self._open[event.id] = event
        out.append(ActionEvent(action=self._action(event, None), phase="started"))

    def _on_tool_finished(self, event: ToolFinished, out: list[UntetherEvent]) -> None:
        self._emit_started(event, out)
        started = self._open.pop(event.id, None)
        if started is None:
            return
        ok = event.status == "ok"
        message = None if ok else event.error
        out.append(
            ActionEvent(action=self._action(started, event), phase="completed", ok=ok, message=message)
        )
        self._commands.pop(event.id, None)

    def _on_asked(self, event: PermissionAsked, out: list[UntetherEvent]) -> None:
        self._emit_started(event, out)
        started = self._open.get(event.id)
        if started is not None:
            if event.command is not None:
                self._commands[event.id] = event.command
            message = f"waits for a permission: {event.command or event.title}"
            out.append(
                ActionEvent(
                    action=self._action(started, None), phase="updated", message=message, level="info"
                )
            )

    def _action(self, started: ToolStarted, finished: ToolFinished | None) -> Action:
        tool_input = (finished and finished.input) or started.input or self._asked_input(started.id)
        cwd = self._started.cwd if self._started else ""
        kind, title = kind_and_title(started.name, tool_input, cwd, paths=started.paths, title=started.title)
        path = path_in(tool_input) or (started.paths[0] if started.paths else None)
        detail = Detail(
            tool_name=started.name,
            input=tool_input,
            tool_id=started.id,
            changes=(Changed(path),) if kind == "file_change" and path else UNSET,
            output_preview=finished.output[:_PREVIEW] if finished and finished.output is not None else UNSET,
            exit_code=finished.exit_code if finished and finished.exit_code is not None else UNSET,
            parent_tool_use_id=started.parent or UNSET,
        )
        return Action(started.id, kind, title, detail)

    def _asked_input(self, call: str) -> dict[str, str]:
        """The command of the permission request.

        The warm transport never reports the input of a denied call.
        """
        command = self._commands.get(call)
        return {} if command is None else {"command": command}

    def _on_finished(self, event: Finished, out: list[UntetherEvent]) -> None:
        self._session_id = event.session_id or self._session_id
        if event.text:
            self._emit_started(event, out)
        self._has_emitted_completed = True
        error = error_of(event)
        if error is not None and event.failure is not None and exited_without_result(event):
            out.append(self._note(error, Detail(code=event.failure.kind), "warning"))
        out.append(
            CompletedEvent(
                ok=event.outcome == "success",
                answer=event.text,
                resume=None if event.clear_session else self._token(self._session_id),
                error=error,
                usage=_usage(event),
            )
        )

    def _note(self, message: str, detail: Detail, level: Literal["warning", "error"]) -> ActionEvent:
        self._notes += 1
        action = Action(f"{ENGINE}.note.{self._notes}", "warning", message, detail)
        return ActionEvent(action=action, phase="completed", ok=False, message=message, level=level)

    @staticmethod
    def _token(session_id: str | None) -> ResumeToken | None:
        return ResumeToken(ENGINE, session_id) if session_id else None


_Handler = Callable[[Translator, Any, list[UntetherEvent]], None]
_HANDLERS: dict[type, _Handler] = {
    Started: Translator._on_started,
    Notice: Translator._on_notice,
    ToolStarted: Translator._on_tool_started,
    ToolFinished: Translator._on_tool_finished,
    PermissionAsked: Translator._on_asked,
    **dict.fromkeys((Thought, TokensUsed, PermissionDecided), Translator._emit_started),
}


def _usage(event: Finished) -> RunUsage | None:
    usage, usd = event.usage, event.cost.usd if event.cost is not None else None
    if usage is None or (usage.input is None and usage.output is None):
        return None
    if usage.unknown:
        # A request is missing from the sums. The format can express that only by nulls.
        tokens = TokenUsage(input_tokens=None, output_tokens=None)
    else:
        cached = UNSET if usage.cached is None else usage.cached
        tokens = TokenUsage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=cached)
    cost = UNSET if usd is None else float(usd)
    return RunUsage(usage=tokens, duration_ms=event.duration_ms, total_cost_usd=cost)


_EXCERPT = 300
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>)]+")
_PATH = re.compile(r"(?<![\w.~/\\\]])(?:~?/|\.{1,2}/|[A-Za-z]:\\)[^\s:;,\"'<>()]+")


def error_of(event: Finished) -> str | None:
    """The error message, with the outcome; None for a success."""
    if event.outcome == "success":
        return None
    if not _has_no_result(event):
        kind = f" ({event.failure.kind})" if event.failure else ""
        reason = event.failure.message if event.failure else event.reason
        return f"gemini {event.outcome}{kind}" + (f": {reason}" if reason else "")
    parts = ["gemini finished without a result event"]
    if exited_without_result(event):
        parts = [f"gemini failed ({_exit(event.exit_code)})."]
    if event.session_id:
        parts.append(f"session: {event.session_id[:8]}")
    if event.failure and event.failure.stderr_tail:
        parts.append(_public(event.failure.stderr_tail))
    return "\n".join(part for part in parts if part)


def exited_without_result(event: Finished) -> bool:
    """Whether the process failed without a result, which gets a warning of its own."""
    return _has_no_result(event) and event.exit_code not in (0, None)


def _has_no_result(event: Finished) -> bool:
    return event.failure is not None and event.failure.kind in ("cut_off", "crashed")


def _exit(code: int | None) -> str:
    try:
        return f"rc={code}, {signal.Signals(-(code or 0)).name}"
    except ValueError:
        return f"rc={code}"


def _public(stderr: str) -> str:
    """The beginning of stderr without paths and URLs: it may be shown in a chat."""
    return _PATH.sub("[path]", _URL.sub("[url]", stderr))[:_EXCERPT].strip()
