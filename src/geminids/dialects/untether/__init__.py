"""Translate the events of a run to Untether's events: `started`, actions, and one `completed`."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from geminids.dialects.untether.model import (
    ENGINE,
    Action,
    ActionEvent,
    CompletedEvent,
    StartedEvent,
    UntetherEvent,
    encode_untether_event,
)
from geminids.dialects.untether.tools import path_in, tool_kind_and_title
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
from geminids.gemini.protocol.stderr import is_noise
from geminids.log import get_logger
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

_log = get_logger("dialects")

_PREVIEW = 500
# Codes of notices about valid lines for which Untether has no event. These notices are only logged.
_UNKNOWN_EVENTS = {"unknown_event", "unknown_role", "unknown_update"}
# Codes of notices about malformed lines. These notices become warnings, whatever their level is.
_MALFORMED_LINES = {"noise", "protocol", "encoding", "line_too_long"}
_MODES = {"yolo": "full access", "auto_edit": "edit files"}


def translate(events: Iterable[Event]) -> Iterator[UntetherEvent]:
    """Translate all events of a run, and yield Untether's events.

    The last one is always a `CompletedEvent`. If the run was cut off, as in this example, the
    `CompletedEvent` contains the text so far:

    >>> from geminids.events.model import Text
    >>> list(translate([Text(at=0, seq=0, attempt=1, turn=1, text="half of it")]))[-1].answer
    'half of it'
    """
    translator = Translator()
    for event in events:
        yield from translator.feed((event,))
    yield from translator.finish()


class Encoder:
    """Translates the events of one run to Untether's events, and encodes each of these as a line of
    JSON."""

    def __init__(self) -> None:
        self._translator = Translator()

    def feed(self, events: Sequence[Event]) -> bytes:
        return _lines(self._translator.feed(events))

    def finish(self) -> bytes:
        return _lines(self._translator.finish())


def _lines(events: Iterable[UntetherEvent]) -> bytes:
    return b"".join(encode_untether_event(event) + b"\n" for event in events)


class Translator:
    """Translates the events of one run to Untether's events, batch by batch."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._session_id: str | None = None
        self._model: str | None = None
        self._text = io.StringIO(newline="")
        self._has_emitted_started = False
        self._has_emitted_completed = False
        self._notes = 0
        self._cli_error: str | None = None
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

    def finish(self, error: str | None = None) -> list[UntetherEvent]:
        """Return a list with a failed `CompletedEvent` if the run had no `Finished` event;
        otherwise an empty list.

        `error` says why the run ended; None if that is not known.
        """
        if self._has_emitted_completed:
            return []
        self._has_emitted_completed = True
        answer = self._text.getvalue()
        has_session = self._has_emitted_started or bool(answer)
        return [
            CompletedEvent(
                ok=False,
                answer=answer,
                resume=self._token(self._session_id) if has_session else None,
                error=error or "gemini: the events end before the run has ended",
            )
        ]

    def _on_started(self, event: Started, out: list[UntetherEvent]) -> None:
        self._started = event
        self._session_id = event.session_id or self._session_id
        self._model = event.model or self._model
        self._text = io.StringIO(newline="")

    def _on_notice(self, event: Notice, out: list[UntetherEvent]) -> None:
        if event.code == "session":
            # The CLI has loaded and has reported its session. For Untether, the run starts now.
            if (session := event.session) is not None:
                self._session_id, self._model = session.session_id, session.model or self._model
            self._emit_started(event, out)
        elif event.code in _UNKNOWN_EVENTS:
            _log.debug("ignored an event of the CLI: %s", event.message)
        elif event.code in _MALFORMED_LINES:
            _log.warning("ignored a malformed line of the CLI: %s", event.message)
            detail = {"code": event.code, "line": event.message}
            out.append(self._note(event.message, detail, "warning"))
        elif event.level in ("warning", "error"):
            if event.code == "cli" and event.level == "error":
                self._cli_error = event.message
            out.append(self._note(event.message, {"code": event.code}, event.level))

    def _emit_started(self, event: Event, out: list[UntetherEvent]) -> None:
        """Add a `StartedEvent` to `out` if the session is known and no `StartedEvent` was emitted
        before."""
        if self._has_emitted_started or not self._session_id:
            return
        self._has_emitted_started = True
        meta: dict[str, Any] = {}
        if self._model:
            meta["model"] = self._model
        if (started := self._started) is not None:
            if started.pid:  # a recording has no process id: it is 0 there
                meta["pid"] = started.pid
            if mode := _MODES.get(started.approval or ""):
                meta["permissionMode"] = mode
        token = ResumeToken(ENGINE, self._session_id)
        out.append(StartedEvent(resume=token, meta=meta or None))

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
        kind, title = tool_kind_and_title(started.name, tool_input, paths=started.paths, title=started.title)
        detail: dict[str, Any] = {
            "tool_name": started.name,
            "input": tool_input,
            "tool_id": started.id,
        }
        path = path_in(tool_input) or (started.paths[0] if started.paths else None)
        if kind == "file_change" and path:
            detail["changes"] = [{"path": path, "kind": "update"}]
        output = None if finished is None else finished.error if finished.output is None else finished.output
        if output is not None:
            detail["output_preview"] = output[:_PREVIEW]
        if finished is not None and finished.exit_code is not None:
            detail["exit_code"] = finished.exit_code
        if started.parent:
            detail["parent_tool_use_id"] = started.parent
        return Action(started.id, kind, title, detail)

    def _asked_input(self, call: str) -> dict[str, str]:
        """Return the input of a tool call as reported in its permission request. `call` is the id
        of the call. Return an empty dict if no permission request reported a command.

        On the warm transport, where the CLI is already running before the run starts, no other
        event contains the input of a denied call.
        """
        command = self._commands.get(call)
        return {} if command is None else {"command": command}

    def _on_finished(self, event: Finished, out: list[UntetherEvent]) -> None:
        self._session_id = event.session_id or self._session_id
        if event.text:
            self._emit_started(event, out)
        self._has_emitted_completed = True
        # A run that failed without a `StartedEvent` has no session: the CLI did not open it.
        has_session = (self._has_emitted_started or event.outcome == "success") and not event.clear_session
        error = error_of(event, self._cli_error)
        if error is not None and event.failure is not None and exited_without_result(event):
            out.append(self._note(_exit_line(event), {"code": event.failure.kind}, "warning"))
        out.append(
            CompletedEvent(
                ok=event.outcome == "success",
                answer=event.text,
                resume=self._token(self._session_id) if has_session else None,
                error=error,
                usage=_usage(event),
            )
        )

    def _note(self, message: str, detail: dict[str, Any], level: Literal["warning", "error"]) -> ActionEvent:
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


def _usage(event: Finished) -> dict[str, Any] | None:
    usage = event.usage
    if usage is None or (usage.input is None and usage.output is None):
        return None
    if not (usage.models or usage.input or usage.output):
        # No model answered, for example because the API refused the key: nothing was measured.
        return None
    # If the tokens of a request are unknown, the sums are too low and are not reported.
    is_known = not usage.unknown
    tokens = {
        "input_tokens": usage.input if is_known else None,
        "output_tokens": usage.output if is_known else None,
    }
    if is_known and usage.cached is not None:
        tokens["cache_read_tokens"] = usage.cached
    run: dict[str, Any] = {"usage": tokens}
    if event.duration_ms:  # a recording without times has no duration: it is 0 there
        run["duration_ms"] = event.duration_ms
    usd = event.cost.usd if event.cost is not None else None
    return {**run, "total_cost_usd": None if usd is None else float(usd)}


_EXCERPT = 300
_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>)]+")
_PATH = re.compile(r"(?<![\w.~/\\\]])(?:~?/|\.{1,2}/|[A-Za-z]:\\)[^\s:;,\"'<>()]+")


def error_of(event: Finished, cli_error: str | None = None) -> str | None:
    """Return the text for the field `error` of a run that has ended; None if the run succeeded.

    `cli_error` is the message of the CLI's last `error` event; None if there was none. The text
    contains this message if the run ended without a `result` event.
    """
    if event.outcome == "success":
        return None
    if not _has_no_result(event):
        kind = f" ({event.failure.kind})" if event.failure and event.outcome == "failed" else ""
        reason = event.failure.message if event.failure else event.reason
        return f"gemini {event.outcome}{kind}" + (f": {reason}" if reason else "")
    parts = ["gemini finished without a result event"]
    if exited_without_result(event):
        parts = [_exit_line(event)]
    if cli_error is not None:
        parts.insert(0, cli_error)
    if event.session_id:
        parts.append(f"session: {event.session_id[:8]}")
    if event.failure and event.failure.stderr_tail:
        parts.append(_public(event.failure.stderr_tail))
    return "\n".join(part for part in parts if part)


def exited_without_result(event: Finished) -> bool:
    """Return whether the CLI ended without a result event and with an exit code other than 0.

    For such a run, a warning is emitted before the `CompletedEvent`.
    """
    return _has_no_result(event) and event.exit_code not in (0, None)


def _has_no_result(event: Finished) -> bool:
    return event.failure is not None and event.failure.kind in ("cut_off", "crashed")


def _exit_line(event: Finished) -> str:
    code = event.exit_code
    try:
        return f"gemini failed (rc={code}, {signal.Signals(-(code or 0)).name})."
    except ValueError:
        return f"gemini failed (rc={code})."


def _public(stderr: str) -> str:
    """Return the first 300 characters of stderr, with `[path]` in place of each path and `[url]` in
    place of each URL.

    Paths and URLs are removed because other people may read the chat that shows this text. Lines
    that do not help to explain a failure are left out.
    """
    stderr = "\n".join(line for line in stderr.splitlines() if not is_noise(line))
    return _PATH.sub("[path]", _URL.sub("[url]", stderr))[:_EXCERPT].strip()
