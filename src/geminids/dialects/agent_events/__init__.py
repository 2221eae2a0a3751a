"""Translate a run to SubLang's agent events: `init`, text, tools, errors, and one `done`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import msgspec

from geminids.dialects.agent_events.done import done_of
from geminids.dialects.agent_events.model import (
    AgentCapabilities,
    AgentEvent,
    Done,
    Error,
    Init,
    Metadata,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    decode_agent_event,
    encode_agent_event,
    is_agent_event,
)
from geminids.dialects.agent_events.payloads import (
    decision_of,
    is_failed_request,
    notice_of,
    request_of,
    result_of,
    thinking_of,
    use_of,
)
from geminids.dialects.agent_events.usage import AgentUsage, cost_of, tokens_of
from geminids.events import model
from geminids.events.model import Event, Finished, Notice, Started, ToolFinished, ToolStarted

__all__ = [
    "AgentEvent",
    "Done",
    "Encoder",
    "Error",
    "Init",
    "Metadata",
    "PermissionRequest",
    "Text",
    "TextDelta",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "Translator",
    "decode_agent_event",
    "encode_agent_event",
    "is_agent_event",
]

_REPORTED: dict[str, Any] = {}


class Translator:
    """Translates the events of one run to agent events. It does not raise an exception for any
    event.

    `disallowed_tools` are the names of tools that the run must not use; `init` lists them. `resume`
    is the id of the session that the run must resume; None for a new session. If the run was
    interrupted before the CLI reported a session, `done` contains this id as its resume token.
    """

    def __init__(
        self,
        *,
        agent: str = "gemini",
        disallowed_tools: Sequence[str] | None = None,
        resume: str | None = None,
    ) -> None:
        self._agent = agent
        self._resume = resume or None
        self._disallowed = None if disallowed_tools is None else tuple(disallowed_tools)
        self._session = ""
        self._run_id = ""
        self._model: str | None = None
        self._tools: tuple[str, ...] | None = None
        self._held_start: Started | None = None
        """The `Started` event of the run; None before this event and after `init` was emitted."""
        self._is_identified = False
        """Whether the CLI has reported the session (and usually the model too)."""
        self._before_init: list[AgentEvent] = []
        self._has_emitted_init = False
        self._has_emitted_done = False
        self._text = StringIO()  # takes far less memory than a list of pieces
        self._message = (0, 0)
        self._times: tuple[int, int] | None = None
        self._inputs: dict[str, dict[str, Any] | None] = {}
        self._requests: list[model.TokensUsed] = []
        self._failed_request = False

    def translate(self, events: Sequence[Event]) -> list[AgentEvent]:
        """Translate a batch of events. Return an empty list if `done` was already emitted."""
        out: list[AgentEvent] = []
        for event in events:
            if self._has_emitted_done:
                break
            at = event.at
            self._times = (self._times[0] if self._times else at, at)
            if type(event) is model.Text:
                # `Text` is the most frequent event, so it is handled here, for speed.
                if (event.attempt, event.turn) != self._message or not self._has_emitted_init:
                    self._end_message(at, out)
                    self._begin(out)
                    self._message = (event.attempt, event.turn)
                self._text.write(event.text)
                out.append(
                    AgentEvent(
                        type="text_delta",
                        agent=self._agent,
                        timestamp=at,
                        session_id=self._session,
                        payload=TextDelta(delta=event.text),
                    )
                )
            elif (handler := _HANDLERS.get(type(event))) is not None:
                handler(self, event, out)
        return out

    def finish(self) -> list[AgentEvent]:
        """Return an `error` and a `done` event if the events ended without `Finished`; otherwise an
        empty list."""
        if self._has_emitted_done:
            return []
        first, last = self._times or (0, 0)
        out: list[AgentEvent] = []
        self._end_message(last, out)
        self._begin(out)
        error = Error(
            code="MISSING_DONE", message="the events end before the run has ended", recoverable=False
        )
        done = Done(status="error", usage=AgentUsage(len(self._inputs)), duration_ms=max(0, last - first))
        self._has_emitted_done = True
        return [*out, self._new("error", last, error), self._new("done", last, done)]

    def _new(self, kind: str, at: int, payload: Any, metadata: Metadata | None = None) -> AgentEvent:
        return AgentEvent(
            type=kind,
            agent=self._agent,
            timestamp=at,
            session_id=self._session or self._run_id or "unknown",
            payload=payload,
            metadata=metadata,
        )

    def _begin(self, out: list[AgentEvent]) -> None:
        """Emit `init`, and then the events that were held back until `init`. A second call has no
        effect."""
        if self._has_emitted_init:
            return
        self._has_emitted_init = True
        started, self._held_start = self._held_start, None
        self._session = self._session or self._run_id or "unknown"
        if started is not None:
            capabilities = AgentCapabilities(
                tools_known=self._tools is not None,
                tools_source="unavailable" if self._tools is None else "gateway",
                disallowed_tools=self._disallowed,
            )
            init = Init(
                model=self._model or "unknown",
                cwd=started.cwd,
                tools=self._tools or (),
                capabilities=capabilities,
            )
            metadata = Metadata(
                run_id=started.run_id,
                cli_version=started.cli_version,
                transport=started.transport,
                approval=started.approval,
            )
            out.append(self._new("init", started.at, init, metadata))
        out += [msgspec.structs.replace(event, session_id=self._session) for event in self._before_init]
        self._before_init.clear()

    def _end_message(self, at: int, out: list[AgentEvent]) -> None:
        """End the current message. If it has text, emit a `text` event with the complete text. The
        pieces of this text were already emitted as `text_delta` events. `at` is the time of the
        `text` event in Unix milliseconds."""
        if content := self._text.getvalue():
            out.append(self._new("text", at, Text(content=content)))
            self._text = StringIO()
        self._message = (0, 0)

    def _on_started(self, event: Started, out: list[AgentEvent]) -> None:
        self._run_id = self._run_id or event.run_id
        self._session = event.session_id or self._session
        self._model = event.model or self._model
        if not self._has_emitted_init and self._held_start is None:
            self._held_start = event
            self._is_identified = bool(event.session_id and event.model)

    def _on_notice(self, event: Notice, out: list[AgentEvent]) -> None:
        if self._held_start is not None:
            self._complete_start(event, out)
        self._failed_request = self._failed_request or is_failed_request(event)
        notice = notice_of(event)
        if notice is not None:
            kind, payload, metadata = notice
            (out if self._has_emitted_init else self._before_init).append(
                self._new(kind, event.at, payload, metadata)
            )

    def _complete_start(self, notice: Notice, out: list[AgentEvent]) -> None:
        """Read the session, the model and the tools from a notice. Emit `init` if the session and
        the tools are now known, or if the notice reports a stall (the run makes no progress)."""
        if (session := notice.session) is not None:
            self._session = self._session or session.session_id
            self._model = self._model or session.model
            self._is_identified = True
        if notice.tools is not None:
            self._tools = notice.tools
        if (self._is_identified and self._tools is not None) or notice.stall is not None:
            self._begin(out)

    def _on_thought(self, event: model.Thought, out: list[AgentEvent]) -> None:
        self._begin(out)
        out.append(self._new("thinking", event.at, *thinking_of(event)))

    def _on_tool_started(self, event: ToolStarted, out: list[AgentEvent]) -> None:
        self._begin(out)
        if event.parent is None:
            self._end_message(event.at, out)
        self._inputs[event.id] = event.input
        out.append(self._new("tool_use", event.at, *use_of(event)))

    def _on_tool_finished(self, event: ToolFinished, out: list[AgentEvent]) -> None:
        self._begin(out)
        if event.id not in self._inputs:
            # Emit the call before its result, even if its start was not reported.
            self._inputs[event.id] = event.input
            out.append(self._new("tool_use", event.at, *use_of(event)))
        with_input = self._inputs[event.id] is None
        out.append(self._new("tool_result", event.at, *result_of(event, with_input=with_input)))
        self._inputs[event.id] = _REPORTED  # count the call, but drop its input, which can be large

    def _on_asked(self, event: model.PermissionAsked, out: list[AgentEvent]) -> None:
        self._begin(out)
        request = request_of(event, self._inputs.get(event.id))
        out.append(self._new("permission_request", event.at, *request))

    def _on_decided(self, event: model.PermissionDecided, out: list[AgentEvent]) -> None:
        self._begin(out)
        out.append(self._new("geminids:permission_decided", event.at, decision_of(event)))

    def _on_tokens(self, event: model.TokensUsed, out: list[AgentEvent]) -> None:
        self._requests.append(event)
        self._failed_request = self._failed_request or event.is_http_error

    def _on_finished(self, event: Finished, out: list[AgentEvent]) -> None:
        self._run_id = self._run_id or event.run_id
        self._session = event.session_id or self._session
        was_started = self._has_emitted_init or self._held_start is not None
        self._begin(out)
        self._end_message(event.at, out)
        failed = self._failed_request or (event.failure is not None and event.failure.http_status is not None)
        tokens = tokens_of(event, self._requests, failed_request=failed)
        usage = AgentUsage(len(self._inputs), tokens, cost_of(event, tokens, failed_request=failed))
        error, done = done_of(event, usage, was_started=was_started, resume=self._resume)
        if error is not None:
            out.append(self._new("error", event.at, *error))
        out.append(self._new("done", event.at, *done))
        self._has_emitted_done = True


class Encoder:
    """Translates the events of a run to agent events, and encodes each of these as a line of
    JSON."""

    def __init__(self) -> None:
        self._translator = Translator()

    def feed(self, events: Sequence[Event]) -> bytes:
        return _lines(self._translator.translate(events))

    def finish(self) -> bytes:
        return _lines(self._translator.finish())


_encode = msgspec.json.Encoder().encode_lines


def _lines(events: Sequence[AgentEvent]) -> bytes:
    try:
        return _encode(events) if events else b""
    except UnicodeEncodeError:  # a lone surrogate: `encode_agent_event` replaces it
        return b"".join(encode_agent_event(event) + b"\n" for event in events)


_Handler = Callable[[Translator, Any, list[AgentEvent]], None]
_HANDLERS: dict[type[Event], _Handler] = {
    Started: Translator._on_started,
    Notice: Translator._on_notice,
    model.Thought: Translator._on_thought,
    ToolStarted: Translator._on_tool_started,
    ToolFinished: Translator._on_tool_finished,
    model.PermissionAsked: Translator._on_asked,
    model.PermissionDecided: Translator._on_decided,
    model.TokensUsed: Translator._on_tokens,
    Finished: Translator._on_finished,
}
