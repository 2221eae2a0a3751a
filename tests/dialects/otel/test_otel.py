"""Export runs as OpenTelemetry spans; the SDK's in-memory exporter reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.errors import GeminidsError
from geminids.events.model import Event, Text, TokensUsed, ToolFinished, ToolStarted, Usage
from random_events import RECORDED, any_events, recorded, valid_runs

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk, which reads the spans, is not installed")

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from geminids.dialects.otel import Spans, spans, traceparent_env

_MS = 1_000_000


def _spans(events: Sequence[Event], **fields: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans(events, provider.get_tracer("test"), **fields)
    return list(exporter.get_finished_spans())


def _run_span(spans: Sequence[ReadableSpan]) -> ReadableSpan:
    (run,) = [span for span in spans if span.name.startswith("invoke_agent")]
    return run


def _named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_is_one_span_with_its_requests_and_tools_in_it() -> None:
    """The span of a run has no parent. Its requests and tools are children of it, with the names
    and kinds of the conventions."""
    spans = _spans(recorded("tools"))
    run = _run_span(spans)
    assert run.name == "invoke_agent gemini"
    assert (run.kind, run.parent) == (SpanKind.INTERNAL, None)
    inner = [span for span in spans if span is not run]
    assert {span.parent.span_id for span in inner if span.parent} == {run.context.span_id}
    assert [span.kind for span in _named(spans, "generate_content gemini-3.8-flash")] == [SpanKind.CLIENT] * 4
    tools = [span.name for span in spans if span.name.startswith("execute_tool")]
    assert sorted(tools) == [
        "execute_tool glob",
        "execute_tool list_directory",
        "execute_tool read_file",
        "execute_tool replace",
        "execute_tool run_shell_command",
        "execute_tool write_file",
    ]
    assert spans[-1] is run


def test_the_run_has_the_attributes_of_the_conventions() -> None:
    """The run has the attributes of the conventions. Cached tokens are part of the input, and
    thinking is part of the output."""
    run = _run_span(_spans(recorded("tools"), provider="gcp.gemini"))
    assert _attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.agent.name": "gemini",
        "gen_ai.agent.version": "0.61.0",
        "gen_ai.request.model": "flash",
        "gen_ai.conversation.id": "5f0c0f5e-0000-4000-8000-000000000001",
        "gen_ai.usage.input_tokens": 4000,
        "gen_ai.usage.cache_read.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 108,
        "gen_ai.response.finish_reasons": ("stop",),
        "geminids.run.id": "run-0123456789abcdef",
        "geminids.transport": "headless",
        "geminids.outcome": "success",
        "geminids.exit_code": 0,
        "geminids.cost.usd": 0.002595,
        "geminids.cost.basis": "exact",
    }
    assert run.status.status_code is StatusCode.UNSET


def test_a_request_has_its_tokens_and_times() -> None:
    """The span of a request has its tokens. It begins when the request was sent and ends with the
    answer."""
    events = recorded("tools")
    first, second, *_ = _named(_spans(events), "generate_content gemini-3.8-flash")
    assert _attributes(first) == {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "gcp.gen_ai",
        "gen_ai.request.model": "gemini-3.8-flash",
        "gen_ai.response.model": "gemini-3.8-flash",
        "gen_ai.conversation.id": "5f0c0f5e-0000-4000-8000-000000000001",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.output_tokens": 27,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "geminids.role": "main",
        "geminids.request": 1,
        "http.response.status_code": 200,
    }
    used_events = [event for event in events if isinstance(event, TokensUsed)]
    for span, used in zip((first, second), used_events, strict=False):
        assert span.start_time == (used.at - (used.duration_ms or 0)) * _MS
        assert span.end_time == used.at * _MS


def test_a_request_without_a_duration() -> None:
    """Without the gateway, the span of a request begins when the tools of the turn before have
    ended."""
    events = [
        msgspec.structs.replace(event, duration_ms=None) if isinstance(event, TokensUsed) else event
        for event in recorded("tools")
    ]
    _, second, *_ = _named(_spans(events), "generate_content gemini-3.8-flash")
    tools = [event.at for event in events if isinstance(event, ToolFinished) and event.turn == 1]
    assert second.start_time == max(tools) * _MS


def test_totals_with_unknown_parts() -> None:
    """If thinking and tool tokens are unknown, the totals of output and input are left out."""
    usage = Usage(input=1000, cached=300, output=20, total=1027)
    end = msgspec.structs.replace(recorded("plain")[-1], usage=usage)
    run = _attributes(_run_span(_spans([*recorded("plain")[:-1], end])))
    assert run["gen_ai.usage.cache_read.input_tokens"] == 300
    assert not {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} & set(run)


def test_a_request_with_unknown_tokens() -> None:
    """The span of a request with unknown tokens is an error without tokens. The run has no totals,
    only the number of such requests."""
    spans = _spans(recorded("interrupted"))
    (request,) = _named(spans, "generate_content gemini-3.8-flash")
    assert _attributes(request)["error.type"] == "interrupted"
    run = _attributes(_run_span(spans))
    assert run["geminids.usage.unknown_requests"] == 1
    assert not [
        name for span in (request, _run_span(spans)) for name in _attributes(span) if "gen_ai.usage" in name
    ]


def _request(number: int, at: int, **fields: Any) -> TokensUsed:
    counts: dict[str, Any] = dict.fromkeys(
        ("input", "cached", "output", "thinking", "tool"), 0 if "status" in fields else 7
    )
    base: dict[str, Any] = {"seq": number, "attempt": 1, "turn": 1, "model": "m", "role": "main"}
    return TokensUsed(at=at, **base, **counts, requested_model="m", request=number, duration_ms=10, **fields)


def test_retries_stay_inside_the_span_of_their_request() -> None:
    """Requests that the API refused and the answered one are one span, from the first request to
    the answer."""
    refused = [_request(1, 100, status=503), _request(2, 200, status=503, repeat=True)]
    (span,) = _named(_spans([*refused, _request(3, 300, repeat=True)]), "generate_content m")
    assert (span.start_time, span.end_time) == (90 * _MS, 300 * _MS)
    attributes = _attributes(span)
    assert (
        attributes["http.request.resend_count"],
        attributes["geminids.request"],
        attributes["geminids.repeat"],
    ) == (
        2,
        3,
        True,
    )
    assert span.status.status_code is StatusCode.UNSET


def test_a_request_that_was_never_answered() -> None:
    """A request that was never answered is one span: an error with the last status. Another request
    at the same time has its own span."""
    events = [_request(1, 100, status=429), _request(2, 150), _request(3, 200, status=503, repeat=True)]
    answered, failed = _named(_spans(events), "generate_content m")
    assert _attributes(failed)["error.type"] == "503"
    assert (failed.start_time, failed.end_time) == (90 * _MS, 200 * _MS)
    assert not [name for name in _attributes(failed) if "usage" in name or "response.model" in name]
    assert answered.start_time == 140 * _MS
    again = _spans([_request(1, 100, status=429), recorded("plain")[0], _request(2, 150)])
    assert len(_named(again, "generate_content m")) == 2


@pytest.mark.parametrize(
    ("reason", "expected"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("OTHER", "error")]
)
def test_the_finish_reason_of_an_answer(reason: str, expected: str) -> None:
    """The run has the API's finish reason. The output message has the name that the conventions
    give it."""
    end = msgspec.structs.replace(recorded("plain")[-1], finish_reason=reason, discarded=(1,))
    run = _attributes(_run_span(_spans([*recorded("plain")[:-1], end], content=True)))
    assert run["gen_ai.response.finish_reasons"] == (reason.lower(),)
    assert msgspec.json.decode(run["gen_ai.output.messages"])[0]["finish_reason"] == expected
    assert run["geminids.discarded_requests"] == (1,)


def test_a_tool_has_its_call_and_its_time() -> None:
    """The span of a tool has its id, name, kind, duration and exit code, but neither its input nor
    its output."""
    (shell,) = _named(_spans(recorded("tools")), "execute_tool run_shell_command")
    assert _attributes(shell) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "run_shell_command",
        "gen_ai.tool.call.id": "run_shell_command__run_shell_command_1794800000000_1",
        "gen_ai.tool.type": "function",
        "geminids.tool.kind": "execute",
        "geminids.tool.exit_code": 3,
    }
    (duration_ms,) = (
        event.duration_ms
        for event in recorded("tools")
        if isinstance(event, ToolFinished) and event.name == "run_shell_command"
    )
    assert duration_ms and (shell.end_time or 0) - (shell.start_time or 0) == duration_ms * _MS
    assert shell.status.status_code is StatusCode.UNSET


def test_spans_of_a_subagent_are_inside_its_call() -> None:
    """The call of a subagent is the parent of the subagent's tools and requests."""
    spans = _spans(recorded("subagent"))
    run = _run_span(spans)
    (call,) = _named(spans, "execute_tool invoke_agent")
    assert call.parent is not None and call.parent.span_id == run.context.span_id
    for name in ("execute_tool read_file", "execute_tool complete_task"):
        (inner,) = _named(spans, name)
        assert inner.parent is not None and inner.parent.span_id == call.context.span_id
    requests = _named(spans, "generate_content gemini-3.8-flash")
    roles = {
        (_attributes(span)["geminids.role"], span.parent.span_id if span.parent else None)
        for span in requests
    }
    assert roles == {("main", run.context.span_id), ("subagent", call.context.span_id)}
    for span in requests:
        assert (span.start_time or 0) <= (span.end_time or 0)


@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        ("api_error", "bad_request"),
        ("bad_key", "auth"),
        ("loop", "loop"),
        ("max_turns", "max_turns"),
        ("timed_out", "timed_out"),
        ("interrupted", "interrupted"),
        ("no_result", "cut_off"),
    ],
)
def test_a_run_that_did_not_succeed_is_an_error(recording: str, kind: str) -> None:
    """The span of a run that did not succeed is an error. Its `error.type` is the kind of the
    failure, or the outcome."""
    run = _run_span(_spans(recorded(recording)))
    assert run.status.status_code is StatusCode.ERROR
    assert _attributes(run)["error.type"] == kind


@pytest.mark.parametrize(
    ("recording", "tool", "kind"),
    [("denied", "run_shell_command", "denied"), ("failed_tool", "read_file", "failed")],
)
def test_a_failed_tool_is_an_error_and_its_run_is_not(recording: str, tool: str, kind: str) -> None:
    """The span of a denied or failed tool is an error with that status, and without the reason,
    which is content. The run's span is no error."""
    spans = _spans(recorded(recording))
    (span,) = _named(spans, f"execute_tool {tool}")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert _attributes(span)["error.type"] == kind
    assert _run_span(spans).status.status_code is StatusCode.UNSET


def test_content_is_included_only_on_request() -> None:
    """Prompt, answer, and the inputs and outputs of tools are in the spans only with
    `content=True`."""
    events = recorded("tools")
    without = "".join(span.to_json() for span in _spans(events))
    for word in ("Do the tools.", "done.", "hello", "a.txt"):
        assert word not in without
    spans = _spans(events, content=True)
    run = _attributes(_run_span(spans))
    input_messages = [{"role": "user", "parts": [{"type": "text", "content": "Do the tools."}]}]
    output_messages = [
        {"role": "assistant", "parts": [{"type": "text", "content": "done."}], "finish_reason": "stop"}
    ]
    assert json.loads(run["gen_ai.input.messages"]) == input_messages
    assert json.loads(run["gen_ai.output.messages"]) == output_messages
    (read,) = _named(spans, "execute_tool read_file")
    assert json.loads(_attributes(read)["gen_ai.tool.call.arguments"]) == {"file_path": "a.txt"}
    assert _attributes(read)["gen_ai.tool.call.result"] == "hello\n"


def test_a_decision_is_an_event_of_the_tools_span() -> None:
    """A permission decision is an event of the tool's span."""
    (shell,) = _named(_spans(recorded("asked")), "execute_tool run_shell_command")
    (decided,) = shell.events
    assert decided.name == "geminids.permission"
    assert dict(decided.attributes or {})["geminids.permission.decision"] == "deny"


def test_warnings_are_events_without_their_message() -> None:
    """Warnings are events of the run's span, with their code. Their message is included only with
    `content=True`."""
    notices = [
        event for event in _run_span(_spans(recorded("loop"))).events if event.name == "geminids.notice"
    ]
    assert [dict(event.attributes or {}) for event in notices] == [
        {"geminids.notice.code": "loop_recovery", "geminids.notice.level": "warning", "geminids.request": 6},
        {"geminids.notice.code": "discarded", "geminids.notice.level": "warning", "geminids.request": 5},
        {"geminids.notice.code": "loop", "geminids.notice.level": "warning"},
    ]
    with_content = _run_span(_spans(recorded("loop"), content=True)).events
    assert "Loop detected" in str([dict(event.attributes or {}) for event in with_content])


def test_the_run_is_a_child_of_the_callers_span() -> None:
    """With a parent, the run's span is its child. The span can start before the process, so that
    TRACEPARENT is known."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    outer = tracer.start_span("request")
    spans = Spans(tracer, parent=set_span_in_context(outer))
    env = traceparent_env(spans.start())
    assert spans.feed(recorded("plain")) == b""
    assert spans.finish() == b""
    run = _run_span(exporter.get_finished_spans())
    assert run.parent is not None and run.parent.span_id == outer.get_span_context().span_id
    assert env["TRACEPARENT"].startswith(f"00-{run.context.trace_id:032x}-{run.context.span_id:016x}-")
    assert len(_named(list(exporter.get_finished_spans()), "invoke_agent gemini")) == 1


def test_without_a_span_there_is_no_traceparent() -> None:
    """Without an active span, `traceparent_env` returns no variables."""
    assert traceparent_env() == {}


def test_open_spans_are_ended() -> None:
    """If the events stop during a tool, the spans of the tool and the run are ended as errors."""
    events = recorded("tools")[:9]
    spans = [span for span in _spans(events) if not span.name.startswith("generate_content")]
    assert {span.name for span in spans} >= {"execute_tool read_file", "invoke_agent gemini"}
    assert all(span.status.status_code is StatusCode.ERROR for span in spans)
    assert _attributes(_run_span(spans))["error.type"] == "_OTHER"


def test_a_truncated_run_ends_with_its_last_event() -> None:
    """The span of a truncated run ends at the time of the last event."""
    *_, last = events = recorded("no_result")[:4]
    run = _run_span(_spans(events))
    assert isinstance(last, Text) and run.end_time == last.at * _MS


def test_a_deeply_nested_input() -> None:
    """A tool input that is nested too deeply becomes null, and the span is still exported."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    base: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1, "id": "x", "name": "t", "input": deep}
    events = [ToolStarted(kind="other", title="", **base), ToolFinished(status="ok", **base)]
    (tool,) = _named(_spans(events, content=True), "execute_tool t")
    assert _attributes(tool)["gen_ai.tool.call.arguments"] == "null"


def test_requests_of_parallel_and_nested_subagents() -> None:
    """A request belongs to the run if two subagents run in parallel, and to the inner subagent if
    they are nested."""
    base: dict[str, Any] = {"seq": 0, "attempt": 1, "turn": 1}
    agent: dict[str, Any] = {"name": "invoke_agent", "kind": "agent", "title": "", "input": None}
    used = TokensUsed(
        at=20, model="m", role="subagent", input=1, cached=0, output=1, thinking=0, tool=0, **base
    )
    first = ToolStarted(at=10, id="a", **agent, **base)
    second = ToolStarted(at=11, id="b", **agent, **base)
    inner = ToolStarted(at=11, id="b", parent="a", **agent, **base)
    spans = _spans([first, second, used])
    (request,) = _named(spans, "generate_content m")
    assert request.parent is not None and request.parent.span_id == _run_span(spans).context.span_id
    spans = _spans([first, inner, used])
    (request,) = _named(spans, "generate_content m")
    caller = next(span for span in spans if _attributes(span).get("gen_ai.tool.call.id") == "b")
    assert request.parent is not None and request.parent.span_id == caller.context.span_id


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional dependency, `Spans` raises an error that names the extra to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(GeminidsError, match=r"geminids\[otel\]"):
        Spans()


@pytest.mark.parametrize("recording", RECORDED)
def test_every_recorded_run_is_traced_completely(recording: str) -> None:
    """A recorded run has one span for the run, each request and each tool. All are in one trace,
    and all are ended."""
    events = recorded(recording)
    spans = _spans(events)
    tools = [event for event in events if isinstance(event, ToolFinished)]
    requests = [event for event in events if isinstance(event, TokensUsed)]
    assert len(spans) == 1 + len(tools) + len(requests)
    assert len({span.context.trace_id for span in spans}) == 1
    run = _run_span(spans)
    for span in spans:
        assert span.start_time is not None and span.end_time is not None
        assert (run.start_time or 0) <= span.start_time <= span.end_time <= (run.end_time or 0)


@pytest.mark.parametrize("recording", RECORDED)
def test_every_cut_of_a_run_leaves_no_span_open(recording: str) -> None:
    """Wherever the events of a run stop, all spans are ended, and the run's span is an error."""
    events = recorded(recording)
    for count in range(1, len(events)):
        started: list[Any] = []
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(_StartedSpans(started))
        spans(events[:count], provider.get_tracer("test"))
        assert started and all(span.end_time is not None for span in started)
        assert started[0].status.status_code is StatusCode.ERROR


class _StartedSpans(SpanProcessor):
    """Collects all spans that are started."""

    def __init__(self, started: list[Any]) -> None:
        self._started = started

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._started.append(span)


@given(valid_runs())
def test_every_span_of_a_run_has_its_parent(events: list[Any]) -> None:
    """In a valid run, every span but the run's has a known parent, each tool has a span, and the
    run's span ends last."""
    spans = _spans(events)
    run = _run_span(spans)
    ids = {span.context.span_id for span in spans}
    assert all(span.parent is not None and span.parent.span_id in ids for span in spans if span is not run)
    assert spans[-1] is run
    tools = sum(isinstance(event, ToolStarted) for event in events)
    assert sum(span.name.startswith("execute_tool") for span in spans) == tools


@given(any_events)
def test_no_input_raises(events: list[Any]) -> None:
    """Any events in any order give at most one span of a run."""
    spans = _spans(events, content=True)
    assert len([span for span in spans if span.name == "invoke_agent gemini"]) <= 1
    assert not events or spans or all(type(event).__name__ == "Text" for event in events)
