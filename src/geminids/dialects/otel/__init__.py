"""Create OpenTelemetry spans for a run. The spans follow the semantic conventions for generative AI
(1.41.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from geminids.dialects.otel.attributes import (
    RequestTimes,
    finished_attributes,
    input_attributes,
    permission_attributes,
    request_attributes,
    run_attributes,
    started_attributes,
    tool_attributes,
    tool_end_attributes,
)
from geminids.errors import GeminidsError
from geminids.events.model import (
    Event,
    Finished,
    Notice,
    PermissionDecided,
    Started,
    Text,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

__all__ = ["Spans", "spans", "traceparent_env"]

_Kind = tuple[str, str | None]
"""The kind of a model request: its role, and the model that the request names."""
_SCOPE = "geminids"
_MS = 1_000_000


def traceparent_env(context: Context | None = None) -> dict[str, str]:
    """Return the environment variables that connect a run to a trace; pass them as `Options.env`.

    The variables are `TRACEPARENT` and, if the trace has a state, `TRACESTATE`. The CLI passes its
    environment to its tools, so spans that the tools create belong to the same trace. The values
    come from the span in `context`; without `context`, from the current span. If there is no span,
    the result is empty.
    """
    _api()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return {name.upper(): value for name, value in carrier.items()}


def spans(events: Iterable[Event], tracer: Tracer | None = None, **how: Any) -> None:
    """Create the spans of a run from all of its events. The other parameters are passed to
    `Spans`."""
    recorder = Spans(tracer, **how)
    for event in events:
        recorder.feed((event,))
    recorder.finish()


class Spans:
    """Creates the spans of a run: one for the run, and one for each model request and tool call.

    `content=True` adds prompts, answers, and the input and output of tools to the spans. `provider`
    is `gcp.gemini` or `gcp.vertex_ai`; the default is `gcp.gen_ai`, because the events do not name
    the provider. The span of the run is created in the OpenTelemetry context `parent`; by default,
    in the current context.
    """

    def __init__(
        self,
        tracer: Tracer | None = None,
        *,
        parent: Context | None = None,
        content: bool = False,
        agent_name: str = "gemini",
        provider: str = "gcp.gen_ai",
    ) -> None:
        trace = _api()
        self._trace = trace
        self._tracer: Tracer = tracer or trace.get_tracer(_SCOPE)
        self._parent = parent
        self._content = content
        self._agent_name = agent_name
        self._provider = provider
        self._run: Span | None = None
        self._is_over = False
        self._model: str | None = None
        self._session: str | None = None
        self._latest = 0
        self._tools: dict[str, Span] = {}
        self._agents: dict[str, Context] = {}
        self._request_times = RequestTimes()
        # Requests that the API rejected, by kind, each with the parent and the start time of its
        # span. The CLI may retry them.
        self._refused: dict[_Kind, list[tuple[TokensUsed, str | None, int]]] = {}

    def start(self) -> Context:
        """Start the span of the run now. Return the context of this span, for `traceparent_env`.

        This call is optional: without it, the first event starts the span.
        """
        run = self._run or self._begin(None)
        return self._with(run)

    def feed(self, events: Sequence[Event]) -> bytes:
        """Create the spans for these events. Always return empty bytes, because the tracer exports
        the spans."""
        for event in events:
            kind = type(event)
            if kind is Text or self._is_over:
                continue
            self._latest = max(self._latest, event.at)
            if self._run is None:
                self._begin(event.at)
            if (handle := _HANDLERS.get(kind)) is not None:
                handle(self, event)
        if events and not self._is_over:
            # The loop skips text events, so it has not read their times.
            self._latest = max(self._latest, events[-1].at)
        return b""

    def finish(self) -> bytes:
        """End the spans that are still open, and mark them as failed. If the events ended with
        `Finished`, no span is open and the call has no effect. Always return empty bytes."""
        if self._run is not None and not self._is_over:
            self._is_over = True
            self._end_requests()
            self._end_tools()
            self._fail(self._run, "_OTHER", "the events end before the run has ended")
            self._run.end(self._latest * _MS or None)
        return b""

    def _begin(self, at: int | None) -> Span:
        self._run = self._tracer.start_span(
            f"invoke_agent {self._agent_name}",
            self._parent,
            self._trace.SpanKind.INTERNAL,
            run_attributes(self._agent_name, self._provider),
            start_time=None if at is None else at * _MS,
        )
        return self._run

    def _within(self, parent: str | None) -> Context:
        """Return the context in which a new span is created.

        `parent` is the id of the tool call that started the subagent; None for the main agent. The
        result is the context of this tool call. If `parent` is None or unknown, the result is the
        context of the run.
        """
        if parent is not None and parent in self._agents:
            return self._agents[parent]
        assert self._run is not None
        return self._with(self._run)

    def _with(self, span: Span) -> Context:
        context: Context = self._trace.set_span_in_context(span, self._parent)
        return context

    def _started(self, event: Started) -> None:
        assert self._run is not None
        self._end_requests()
        self._model = event.model or self._model
        self._session = event.session_id or self._session
        self._request_times.begin(event)
        self._run.set_attributes(started_attributes(event))
        if event.attempt > 1:
            self._run.add_event("geminids.attempt", {"geminids.attempt": event.attempt}, event.at * _MS)
        elif self._content:
            self._run.set_attributes(input_attributes(event))

    def _tool_started(self, event: ToolStarted) -> None:
        if (open_span := self._tools.pop(event.id, None)) is not None:
            self._cut_off(open_span, event.at)
        span = self._tracer.start_span(
            f"execute_tool {event.name}",
            self._within(event.parent),
            self._trace.SpanKind.INTERNAL,
            tool_attributes(event),
            start_time=event.at * _MS,
        )
        self._tools[event.id] = span
        if event.kind == "agent":
            # Keep the context after the call has ended: later events of its subagent need it.
            self._agents[event.id] = self._with(span)
            self._request_times.agent_began(event)

    def _tool_finished(self, event: ToolFinished) -> None:
        span = self._tools.pop(event.id, None)
        if span is None:
            return
        self._request_times.tool_ended(event)
        span.set_attributes(tool_end_attributes(event, content=self._content))
        if event.status != "ok":
            self._fail(span, event.status, event.error if self._content else None)
        span.end(event.at * _MS)

    def _tokens_used(self, event: TokensUsed) -> None:
        parent, since = self._request_times.of_request(event)
        kind = (event.role, event.requested_model)
        if event.is_http_error:
            self._refused.setdefault(kind, []).append((event, parent, since))
            return
        # By the conventions, a request and its retries share one span.
        refused = self._refused.pop(kind, []) if event.repeat else []
        if refused:
            _, parent, since = refused[0]
        self._request(event, parent, since, len(refused))

    def _request(self, event: TokensUsed, parent: str | None, since: int, resent: int) -> None:
        model = event.requested_model or event.model or self._model
        attributes = request_attributes(event, model, self._provider, self._session)
        if resent:
            attributes["http.request.resend_count"] = resent
        span = self._tracer.start_span(
            f"generate_content {model}" if model else "generate_content",
            self._within(parent),
            self._trace.SpanKind.CLIENT,
            attributes,
            start_time=since * _MS,
        )
        if event.is_http_error:
            self._fail(span, str(event.status), None)
        elif event.input is None and event.request is not None:
            self._fail(span, "interrupted", "the answer ended without its final token counts")
        span.end(event.at * _MS)

    def _end_requests(self) -> None:
        """Create the spans for rejected requests that were not followed by a successful retry."""
        for refused in self._refused.values():
            _, parent, since = refused[0]
            self._request(refused[-1][0], parent, since, len(refused) - 1)
        self._refused.clear()

    def _noticed(self, event: Notice) -> None:
        self._request_times.noticed(event)
        if event.level not in ("warning", "error"):
            return
        assert self._run is not None
        attributes: dict[str, str | int] = {
            "geminids.notice.code": event.code,
            "geminids.notice.level": event.level,
        }
        if event.request is not None:
            attributes["geminids.request"] = event.request
        if event.retry is not None and event.retry.http_status is not None:
            attributes["http.response.status_code"] = event.retry.http_status
        if self._content:
            attributes["geminids.notice.message"] = event.message
        self._run.add_event("geminids.notice", attributes, event.at * _MS)

    def _decided(self, event: PermissionDecided) -> None:
        span = self._tools.get(event.id) or self._run
        assert span is not None
        span.add_event("geminids.permission", permission_attributes(event), event.at * _MS)

    def _finished(self, event: Finished) -> None:
        assert self._run is not None
        self._is_over = True
        self._end_requests()
        self._end_tools()
        self._run.set_attributes(finished_attributes(event, content=self._content))
        if event.outcome != "success":
            kind = event.failure.kind if event.failure else event.outcome
            self._fail(self._run, kind, event.failure.message if event.failure else event.reason)
        self._run.end(self._latest * _MS)

    def _end_tools(self) -> None:
        for span in self._tools.values():
            self._cut_off(span, self._latest)
        self._tools.clear()

    def _cut_off(self, span: Span, at: int) -> None:
        self._fail(span, "cancelled", None)
        span.end(at * _MS)

    def _fail(self, span: Span, kind: str, reason: str | None) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))


_HANDLERS: dict[type[Event], Any] = {
    Started: Spans._started,
    ToolStarted: Spans._tool_started,
    ToolFinished: Spans._tool_finished,
    TokensUsed: Spans._tokens_used,
    Notice: Spans._noticed,
    PermissionDecided: Spans._decided,
    Finished: Spans._finished,
}


def _api() -> Any:
    """Return the module `opentelemetry.trace`. Raises `GeminidsError` if it is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        hint = "Install it with: pip install 'geminids[otel]'"
        raise GeminidsError("opentelemetry-api is not installed", hint=hint) from None
    return trace
