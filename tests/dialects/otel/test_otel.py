"""A run as OpenTelemetry spans, read by the SDK's own in-memory exporter."""

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
from random_events import RECORDED, any_events, lawful_runs, recorded

pytest.importorskip("opentelemetry.sdk", reason="spans are read by opentelemetry-sdk, which is not installed")

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from geminids.dialects.otel import Spans, spans, traceparent_env

_MS = 1_000_000


def _told(events: Sequence[Event], **how: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans(events, provider.get_tracer("test"), **how)
    return list(exporter.get_finished_spans())


def _run_of(told: Sequence[ReadableSpan]) -> ReadableSpan:
    (run,) = [span for span in told if span.name.startswith("invoke_agent")]
    return run


def _named(told: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in told if span.name == name]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_is_one_span_with_its_requests_and_tools_in_it() -> None:
    """The run has no parent, each request and each tool has the run, and each has its conventional name and kind."""
    told = _told(recorded("tools"))
    run = _run_of(told)
    assert run.name == "invoke_agent gemini"
    assert (run.kind, run.parent) == (SpanKind.INTERNAL, None)
    inner = [span for span in told if span is not run]
    assert {span.parent.span_id for span in inner if span.parent} == {run.context.span_id}
    assert [span.kind for span in _named(told, "generate_content gemini-3.8-flash")] == [SpanKind.CLIENT] * 4
    tools = [span.name for span in told if span.name.startswith("execute_tool")]
    assert sorted(tools) == [
        "execute_tool glob",
        "execute_tool list_directory",
        "execute_tool read_file",
        "execute_tool replace",
        "execute_tool run_shell_command",
        "execute_tool write_file",
    ]
    assert told[-1] is run


def test_the_run_has_the_attributes_of_the_conventions() -> None:
    """Operation, provider, agent, conversation, model, and tokens: cached within input, thinking within output."""
    run = _run_of(_told(recorded("tools"), provider="gcp.gemini"))
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
        "geminids.lane": "headless",
        "geminids.outcome": "success",
        "geminids.exit_code": 0,
        "geminids.cost.usd": 0.002595,
        "geminids.cost.basis": "exact",
    }
    assert run.status.status_code is StatusCode.UNSET


def test_a_request_has_its_tokens_and_the_time_that_it_took() -> None:
    """It begins when it was sent, and ends with its answer."""
    events = recorded("tools")
    first, second, *_ = _named(_told(events), "generate_content gemini-3.8-flash")
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
    told = [event for event in events if isinstance(event, TokensUsed)]
    for span, used in zip((first, second), told, strict=False):
        assert span.start_time == (used.at - (used.duration_ms or 0)) * _MS
        assert span.end_time == used.at * _MS


def test_a_request_that_nobody_measured() -> None:
    """Without the gateway it begins when the tools of the turn before have ended, and ends with its tokens."""
    events = [
        msgspec.structs.replace(event, duration_ms=None) if isinstance(event, TokensUsed) else event
        for event in recorded("tools")
    ]
    _, second, *_ = _named(_told(events), "generate_content gemini-3.8-flash")
    tools = [event.at for event in events if isinstance(event, ToolFinished) and event.turn == 1]
    assert second.start_time == max(tools) * _MS


def test_tokens_of_which_a_part_is_not_known() -> None:
    """Thinking is part of the output and tool prompts are part of the input: without them, no sum is told."""
    usage = Usage(input=1000, cached=300, output=20, total=1027)
    end = msgspec.structs.replace(recorded("plain")[-1], usage=usage)
    run = _attributes(_run_of(_told([*recorded("plain")[:-1], end])))
    assert run["gen_ai.usage.cache_read.input_tokens"] == 300
    assert not {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} & set(run)


def test_a_request_with_unknown_tokens() -> None:
    """Its span is an error without tokens, and the run has no sums: it says how many requests they would lack."""
    told = _told(recorded("interrupted"))
    (request,) = _named(told, "generate_content gemini-3.8-flash")
    assert _attributes(request)["error.type"] == "interrupted"
    run = _attributes(_run_of(told))
    assert run["geminids.usage.unknown_requests"] == 1
    assert not [
        name for span in (request, _run_of(told)) for name in _attributes(span) if "gen_ai.usage" in name
    ]


def _request(number: int, at: int, **fields: Any) -> TokensUsed:
    counts: dict[str, Any] = dict.fromkeys(
        ("input", "cached", "output", "thinking", "tool"), 0 if "status" in fields else 7
    )
    base: dict[str, Any] = {"seq": number, "attempt": 1, "turn": 1, "model": "m", "role": "main"}
    return TokensUsed(at=at, **base, **counts, requested_model="m", request=number, duration_ms=10, **fields)


def test_retries_stay_inside_the_span_of_their_request() -> None:
    """Requests that the API refused and the one that it answered are one span, from the first to the last."""
    refused = [_request(1, 100, status=503), _request(2, 200, status=503, repeat=True)]
    (span,) = _named(_told([*refused, _request(3, 300, repeat=True)]), "generate_content m")
    assert (span.start_time, span.end_time) == (90 * _MS, 300 * _MS)
    told = _attributes(span)
    assert (told["http.request.resend_count"], told["geminids.request"], told["geminids.repeat"]) == (
        2,
        3,
        True,
    )
    assert span.status.status_code is StatusCode.UNSET


def test_a_request_that_was_never_answered() -> None:
    """It is one span, an error with the last status; another request beside it is a span of its own."""
    events = [_request(1, 100, status=429), _request(2, 150), _request(3, 200, status=503, repeat=True)]
    answered, failed = _named(_told(events), "generate_content m")
    assert _attributes(failed)["error.type"] == "503"
    assert (failed.start_time, failed.end_time) == (90 * _MS, 200 * _MS)
    assert not [name for name in _attributes(failed) if "usage" in name or "response.model" in name]
    assert answered.start_time == 140 * _MS
    again = _told([_request(1, 100, status=429), recorded("plain")[0], _request(2, 150)])
    assert len(_named(again, "generate_content m")) == 2


@pytest.mark.parametrize(
    ("reason", "expected"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("OTHER", "error")]
)
def test_an_answer_that_was_cut(reason: str, expected: str) -> None:
    """The API's reason stands on the run, and the conventions' word for it in the answer."""
    end = msgspec.structs.replace(recorded("plain")[-1], finish_reason=reason, discarded=(1,))
    run = _attributes(_run_of(_told([*recorded("plain")[:-1], end], content=True)))
    assert run["gen_ai.response.finish_reasons"] == (reason.lower(),)
    assert msgspec.json.decode(run["gen_ai.output.messages"])[0]["finish_reason"] == expected
    assert run["geminids.discarded_requests"] == (1,)


def test_a_tool_has_its_call_and_its_time() -> None:
    """Its id, its name, its kind; the exit code of a shell; no word of what it was given or gave."""
    (shell,) = _named(_told(recorded("tools")), "execute_tool run_shell_command")
    assert _attributes(shell) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "run_shell_command",
        "gen_ai.tool.call.id": "run_shell_command__run_shell_command_1794800000000_1",
        "gen_ai.tool.type": "function",
        "geminids.tool.kind": "execute",
        "geminids.tool.exit_code": 3,
    }
    (lasted,) = (
        event.duration_ms
        for event in recorded("tools")
        if isinstance(event, ToolFinished) and event.name == "run_shell_command"
    )
    assert lasted and (shell.end_time or 0) - (shell.start_time or 0) == lasted * _MS
    assert shell.status.status_code is StatusCode.UNSET


def test_what_a_subagent_did_is_within_its_call() -> None:
    """Its tools and its requests have the call of the subagent as their parent, also those told after its end."""
    told = _told(recorded("subagent"))
    run = _run_of(told)
    (call,) = _named(told, "execute_tool invoke_agent")
    assert call.parent is not None and call.parent.span_id == run.context.span_id
    for name in ("execute_tool read_file", "execute_tool complete_task"):
        (inner,) = _named(told, name)
        assert inner.parent is not None and inner.parent.span_id == call.context.span_id
    requests = _named(told, "generate_content gemini-3.8-flash")
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
    """Its status is error, and `error.type` is the kind of the failure, or the outcome."""
    run = _run_of(_told(recorded(recording)))
    assert run.status.status_code is StatusCode.ERROR
    assert _attributes(run)["error.type"] == kind


@pytest.mark.parametrize(
    ("recording", "tool", "kind"),
    [("denied", "run_shell_command", "denied"), ("failed_tool", "read_file", "failed")],
)
def test_a_tool_that_did_not_do_it_is_an_error_and_the_run_is_not(
    recording: str, tool: str, kind: str
) -> None:
    """`error.type` is how the call ended; why is content, and is not told without leave."""
    told = _told(recorded(recording))
    (span,) = _named(told, f"execute_tool {tool}")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert _attributes(span)["error.type"] == kind
    assert _run_of(told).status.status_code is StatusCode.UNSET


def test_content_is_told_where_it_is_asked_for_and_nowhere_else() -> None:
    """What was asked and answered, what tools were given and gave: with `content=True` alone."""
    events = recorded("tools")
    without = "".join(span.to_json() for span in _told(events))
    for word in ("Do the tools.", "done.", "hello", "a.txt"):
        assert word not in without
    told = _told(events, content=True)
    run = _attributes(_run_of(told))
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Do the tools."}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "done."}], "finish_reason": "stop"}]
    assert json.loads(run["gen_ai.input.messages"]) == asked
    assert json.loads(run["gen_ai.output.messages"]) == said
    (read,) = _named(told, "execute_tool read_file")
    assert json.loads(_attributes(read)["gen_ai.tool.call.arguments"]) == {"file_path": "a.txt"}
    assert _attributes(read)["gen_ai.tool.call.result"] == "hello\n"


def test_a_decision_stands_on_the_call_that_was_asked_for() -> None:
    """Whoever decided, and what: an event of the tool's span."""
    (shell,) = _named(_told(recorded("asked")), "execute_tool run_shell_command")
    (decided,) = shell.events
    assert decided.name == "geminids.permission"
    assert dict(decided.attributes or {})["geminids.permission.decision"] == "deny"


def test_warnings_are_events_of_the_run_without_their_words() -> None:
    """A notice is told by its code; its message may be content."""
    quiet = [event for event in _run_of(_told(recorded("loop"))).events if event.name == "geminids.notice"]
    assert [dict(event.attributes or {}) for event in quiet] == [
        {"geminids.notice.code": "loop_recovery", "geminids.notice.level": "warning", "geminids.request": 6},
        {"geminids.notice.code": "discarded", "geminids.notice.level": "warning", "geminids.request": 5},
        {"geminids.notice.code": "loop", "geminids.notice.level": "warning"},
    ]
    loud = _run_of(_told(recorded("loop"), content=True)).events
    assert "Loop detected" in str([dict(event.attributes or {}) for event in loud])


def test_the_run_belongs_to_the_span_that_the_caller_has() -> None:
    """With a parent, the run is a child of it; the span can begin before the process, for TRACEPARENT."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    outer = tracer.start_span("request")
    told = Spans(tracer, parent=set_span_in_context(outer))
    env = traceparent_env(told.start())
    assert told.feed(recorded("plain")) == b""
    assert told.finish() == b""
    run = _run_of(exporter.get_finished_spans())
    assert run.parent is not None and run.parent.span_id == outer.get_span_context().span_id
    assert env["TRACEPARENT"].startswith(f"00-{run.context.trace_id:032x}-{run.context.span_id:016x}-")
    assert len(_named(list(exporter.get_finished_spans()), "invoke_agent gemini")) == 1


def test_without_a_span_there_is_no_traceparent() -> None:
    """Nothing is made up where nothing is traced."""
    assert traceparent_env() == {}


def test_what_is_cut_off_is_ended() -> None:
    """Events that stop in the middle of a tool: both spans are ended, as errors."""
    events = recorded("tools")[:9]
    told = [span for span in _told(events) if not span.name.startswith("generate_content")]
    assert {span.name for span in told} >= {"execute_tool read_file", "invoke_agent gemini"}
    assert all(span.status.status_code is StatusCode.ERROR for span in told)
    assert _attributes(_run_of(told))["error.type"] == "_OTHER"


def test_a_run_that_is_cut_off_in_its_text_lasts_as_long_as_that() -> None:
    """Its end is the time of the last event, whatever that was."""
    *_, last = events = recorded("no_result")[:4]
    run = _run_of(_told(events))
    assert isinstance(last, Text) and run.end_time == last.at * _MS


def test_an_input_as_deep_as_json_can_be() -> None:
    """It is left out, and costs nobody the span."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    base: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1, "id": "x", "name": "t", "input": deep}
    events = [ToolStarted(kind="other", title="", **base), ToolFinished(status="ok", **base)]
    (tool,) = _named(_told(events, content=True), "execute_tool t")
    assert _attributes(tool)["gen_ai.tool.call.arguments"] == "null"


def test_of_two_subagents_at_once_a_request_is_nobodys() -> None:
    """Where the events do not tell whose a request was, it belongs to the run."""
    base: dict[str, Any] = {"seq": 0, "attempt": 1, "turn": 1}
    agent: dict[str, Any] = {"name": "invoke_agent", "kind": "agent", "title": "", "input": None}
    used = TokensUsed(
        at=20, model="m", role="subagent", input=1, cached=0, output=1, thinking=0, tool=0, **base
    )
    first = ToolStarted(at=10, id="a", **agent, **base)
    second = ToolStarted(at=11, id="b", **agent, **base)
    inner = ToolStarted(at=11, id="b", parent="a", **agent, **base)
    told = _told([first, second, used])
    (request,) = _named(told, "generate_content m")
    assert request.parent is not None and request.parent.span_id == _run_of(told).context.span_id
    told = _told([first, inner, used])
    (request,) = _named(told, "generate_content m")
    caller = next(span for span in told if _attributes(span).get("gen_ai.tool.call.id") == "b")
    assert request.parent is not None and request.parent.span_id == caller.context.span_id


def test_without_the_api_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dependency is an extra: its absence is a clear error, and no ImportError."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(GeminidsError, match=r"geminids\[otel\]"):
        Spans()


@pytest.mark.parametrize("recording", RECORDED)
def test_every_recorded_run_is_told_whole(recording: str) -> None:
    """A span for each request and each tool, and one for the run, all of one trace, all ended."""
    events = recorded(recording)
    told = _told(events)
    tools = [event for event in events if isinstance(event, ToolFinished)]
    requests = [event for event in events if isinstance(event, TokensUsed)]
    assert len(told) == 1 + len(tools) + len(requests)
    assert len({span.context.trace_id for span in told}) == 1
    run = _run_of(told)
    for span in told:
        assert span.start_time is not None and span.end_time is not None
        assert (run.start_time or 0) <= span.start_time <= span.end_time <= (run.end_time or 0)


@pytest.mark.parametrize("recording", RECORDED)
def test_every_cut_of_a_run_leaves_no_span_open(recording: str) -> None:
    """Wherever the events stop: what began is ended, as an error, within the run."""
    events = recorded(recording)
    for count in range(1, len(events)):
        begun: list[Any] = []
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(_Begun(begun))
        spans(events[:count], provider.get_tracer("test"))
        assert begun and all(span.end_time is not None for span in begun)
        assert begun[0].status.status_code is StatusCode.ERROR


class _Begun(SpanProcessor):
    def __init__(self, begun: list[Any]) -> None:
        self._begun = begun

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._begun.append(span)


@given(lawful_runs())
def test_every_span_of_a_run_has_its_parent(events: list[Any]) -> None:
    """Whatever a run does: one root, which ends last, and no span without a parent that was told."""
    told = _told(events)
    run = _run_of(told)
    ids = {span.context.span_id for span in told}
    assert all(span.parent is not None and span.parent.span_id in ids for span in told if span is not run)
    assert told[-1] is run
    tools = sum(isinstance(event, ToolStarted) for event in events)
    assert sum(span.name.startswith("execute_tool") for span in told) == tools


@given(any_events)
def test_nothing_that_is_heard_raises(events: list[Any]) -> None:
    """Any events in any order."""
    told = _told(events, content=True)
    assert len([span for span in told if span.name == "invoke_agent gemini"]) <= 1
    assert not events or told or all(type(event).__name__ == "Text" for event in events)
