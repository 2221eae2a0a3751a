"""Encode runs as SubLang's agent events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.dialects.agent_events import (
    AgentEvent,
    Done,
    Encoder,
    TextDelta,
    Translator,
    decode_agent_event,
    encode_agent_event,
    is_agent_event,
)
from geminids.events.model import (
    Finished,
    Level,
    Notice,
    PermissionAsked,
    Retry,
    SessionStart,
    Started,
    Text,
    Thought,
    ToolFinished,
)
from geminids.events.stall import Stall
from geminids.outcome import OUTCOMES, Failure
from golden import GOLDEN, check_golden, encode_recording
from random_events import RECORDED, any_events, recorded, text_of, valid_runs

_KINDS = {
    "init",
    "text",
    "text_delta",
    "thinking",
    "tool_use",
    "tool_result",
    "permission_request",
    "error",
    "done",
}


def _lines(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output[:-1].split(b"\n")] if output else []


def _translate(*events: Any, **fields: Any) -> list[AgentEvent]:
    translator = Translator(**fields)
    return [*translator.translate(events), *translator.finish()]


def _started(**fields: Any) -> Started:
    defaults = {
        "session_id": "s-1",
        "model": "pro",
        "cwd": "/repo",
        "cli_version": "0.61.0",
        "transport": "headless",
    }
    return Started(at=10, seq=0, attempt=1, turn=1, run_id="run-1", pid=1, **{**defaults, **fields})


def _finished(**fields: Any) -> Finished:
    defaults: dict[str, Any] = {
        "outcome": "success",
        "failure": None,
        "reason": None,
        "text": "",
        "answer": "",
        "session_id": "s-1",
        "clear_session": False,
        "usage": None,
        "attempts": 1,
        "exit_code": 0,
        "duration_ms": 5,
        "ended": (),
        "complete": True,
    }
    return Finished(at=99, seq=9, attempt=1, turn=1, run_id="run-1", **{**defaults, **fields})


def _notice(level: Level, code: str, message: str = "what", **fields: Any) -> Notice:
    return Notice(at=20, seq=1, attempt=1, turn=1, level=level, code=code, message=message, **fields)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """The output for a recorded run equals its golden file."""
    check_golden(GOLDEN / "agent-events" / f"{name}.jsonl", encode_recording("agent-events", name))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs_keep_the_order(name: str) -> None:
    """`init` comes first and once, `done` comes last and once, and the format's own guard accepts
    every line."""
    lines = _lines(encode_recording("agent-events", name))
    kinds = [line["type"] for line in lines]
    assert all(map(is_agent_event, lines))
    assert (kinds[0], kinds.count("init")) == ("init", 1)
    assert (kinds[-1], kinds.count("done")) == ("done", 1)
    assert all(kind in _KINDS or kind.startswith("geminids:") for kind in kinds)
    assert {line["sessionId"] for line in lines} == {"5f0c0f5e-0000-4000-8000-000000000001"}


@given(events=st.one_of(any_events, valid_runs()))
def test_init_is_first_or_not_there(events: list[Any]) -> None:
    """For any events, `init` is the first line or missing, each line has a session id, and the
    `text` lines join to the same text as the `text_delta` lines."""
    encoder = Encoder()
    lines = _lines(encoder.feed(events) + encoder.finish())
    kinds = [line["type"] for line in lines]
    assert "init" not in kinds[1:]
    assert all(map(is_agent_event, lines))
    assert all(line["sessionId"] for line in lines)
    pieces = "".join(line["payload"]["delta"] for line in lines if line["type"] == "text_delta")
    assert "".join(line["payload"]["content"] for line in lines if line["type"] == "text") == pieces


@given(events=valid_runs())
def test_every_text_is_encoded(events: list[Any]) -> None:
    """The `text_delta` events end with the text of the last attempt."""
    pieces = [event.payload.delta for event in _translate(*events) if event.type == "text_delta"]
    assert "".join(pieces).endswith(text_of(events))


@pytest.mark.parametrize("name", RECORDED)
def test_lines_can_be_decoded(name: str) -> None:
    """Decoding a line gives a typed payload, and encoding it again gives the same JSON."""
    for line in encode_recording("agent-events", name).splitlines():
        event = decode_agent_event(line)
        assert event.type.startswith("geminids:") or isinstance(event.payload, msgspec.Struct)
        again = encode_agent_event(event)
        assert json.loads(again) == json.loads(line)


def test_an_invalid_line_raises() -> None:
    """A line that is no event, or whose payload does not fit its type, raises an error of
    msgspec."""
    for line in (b"{}", b"oops", b'{"type":"text","agent":"a","timestamp":1,"sessionId":"s","payload":{}}'):
        with pytest.raises(msgspec.MsgspecError):
            decode_agent_event(line)


@pytest.mark.parametrize(
    "value", [None, [], {}, {"type": "x", "agent": "a", "timestamp": True, "sessionId": "s", "payload": 1}]
)
def test_the_guard_refuses_invalid_values(value: Any) -> None:
    """`is_agent_event` refuses a value without the four fields of the right type and a payload."""
    assert not is_agent_event(value)


def test_init_waits_for_the_session() -> None:
    """If session and model are unknown at the start, `init` is emitted when the CLI reports
    them."""
    started = _started(session_id=None, model=None)
    events = _translate(
        started,
        _notice("debug", "session", session=SessionStart("s-9", "flash")),
        _finished(session_id="s-9"),
    )
    assert [(event.type, event.session_id) for event in events] == [("init", "s-9"), ("done", "s-9")]
    assert events[0].payload.model == "flash"


def test_init_has_the_tools_of_the_first_request() -> None:
    """`init` waits for the tools of the first request. Events before it come after `init`."""
    translator = Translator()
    assert translator.translate([_started(), _notice("warning", "workspace")]) == []
    init, notice = translator.translate([_notice("debug", "tools", tools=("glob", "read_file"))])
    assert (init.payload.tools, notice.type) == (("glob", "read_file"), "geminids:notice")
    assert (init.payload.capabilities.tools_known, init.payload.capabilities.tools_source) == (
        True,
        "gateway",
    )


def test_init_waits_for_session_and_tools() -> None:
    """If the tools are known before the session, `init` waits for both."""
    translator = Translator()
    tools = _notice("debug", "tools", tools=())
    assert translator.translate([_started(session_id=None, model=None), tools]) == []
    [init] = translator.translate([_notice("debug", "session", session=SessionStart("s-9", None))])
    assert (init.session_id, init.payload.model, init.payload.tools) == ("s-9", "unknown", ())
    assert init.payload.capabilities.tools_known


@pytest.mark.parametrize(
    "event",
    [
        Text(at=30, seq=2, attempt=1, turn=1, text="hi"),
        _notice("warning", "stall", stall=Stall(cause="idle", since_s=9.0)),
        _finished(),
    ],
)
def test_init_does_not_wait_for_tools_that_never_come(event: Any) -> None:
    """Other output, a stall or the end of the run brings `init` without tools. It comes once."""
    translator = Translator()
    assert translator.translate([_started()]) == []
    init = translator.translate([event])[0]
    capabilities = init.payload.capabilities
    assert (init.type, init.payload.tools, capabilities.tools_known) == ("init", (), False)
    assert capabilities.tools_source == "unavailable"
    late = translator.translate([_notice("debug", "tools", tools=("glob",))])
    assert late == []


def test_a_session_that_is_never_reported() -> None:
    """Without a session, the run's id is the session id, and the model is `unknown`."""
    text = Text(at=30, seq=2, attempt=1, turn=1, text="hi")
    events = _translate(_started(session_id=None, model=None), text, _finished(session_id=None))
    assert [event.type for event in events] == ["init", "text_delta", "text", "done"]
    assert {event.session_id for event in events} == {"run-1"}
    assert events[0].payload.model == "unknown"
    assert events[-1].payload.resume_token is None


def test_a_run_that_was_never_started() -> None:
    """A run that never started has no `init`, one `error` and a `done`."""
    failure = Failure(kind="cli_missing", message="no CLI", retryable=False, hint="Install it.")
    events = _translate(
        _notice("warning", "transport"),
        _finished(outcome="failed", failure=failure, session_id=None, exit_code=None),
    )
    assert [event.type for event in events] == ["geminids:notice", "error", "done"]
    assert (events[1].payload.code, events[1].payload.recoverable) == ("GEMINI_STREAM_ERROR", False)
    assert {event.session_id for event in events} == {"run-1"}


def test_events_before_the_start_come_after_init() -> None:
    """`init` is the first event, even if a notice came before the start of the run."""
    events = _translate(_notice("warning", "workspace"), _started(), _finished())
    assert [event.type for event in events] == ["init", "geminids:notice", "done"]
    assert {event.session_id for event in events} == {"s-1"}


@pytest.mark.parametrize(
    ("notice", "kind", "code"),
    [
        (_notice("info", "noise", "oops"), "error", "NDJSON_PARSE_ERROR"),
        (_notice("warning", "protocol"), "error", "NDJSON_PARSE_ERROR"),
        (_notice("warning", "retry", retry=Retry(1, 503)), "error", "GEMINI_RETRY"),
        (_notice("error", "cli"), "error", "GEMINI_CLI"),
        (_notice("warning", "workspace"), "geminids:notice", None),
        (_notice("info", "tool_error"), None, None),
        (_notice("debug", "session", "odd"), None, None),
    ],
)
def test_notices(notice: Notice, kind: str | None, code: str | None) -> None:
    """Bad lines and errors of the CLI become recoverable errors. Our own warnings become extension
    events, and other notices are left out."""
    between = _translate(_started(), notice, _finished())[1:-1]
    assert [event.type for event in between] == ([kind] if kind else [])
    if kind == "error":
        assert (between[0].payload.code, between[0].payload.recoverable) == (code, True)


@pytest.mark.parametrize(
    ("subject", "text", "summary"), [("Plan", "look", "Plan: look"), (None, "look", "look")]
)
def test_thoughts(subject: str | None, text: str, summary: str) -> None:
    """Subject and text of a thought become one summary. A subagent's thought names its call."""
    thought = Thought(at=20, seq=1, attempt=1, turn=1, subject=subject, text=text, parent="call-1")
    event = _translate(_started(), thought, _finished())[1]
    assert event.payload.summary == summary
    assert msgspec.to_builtins(event.metadata) == {"parentToolUseId": "call-1"}


def test_a_result_without_a_call() -> None:
    """A call is added before a result that has none. A cancelled tool is an error, marked as
    `cancelled`."""
    end = ToolFinished(
        at=20, seq=1, attempt=1, turn=1, id="c", name="glob", input={"a": 1}, status="cancelled"
    )
    tool_use, result = _translate(_started(), end, _finished())[1:3]
    assert (tool_use.type, tool_use.payload.input) == ("tool_use", {"a": 1})
    assert (result.payload.status, result.payload.output) == ("error", None)
    assert msgspec.to_builtins(result.metadata) == {"cancelled": True}


@pytest.mark.parametrize(
    ("paths", "expected"), [((), {}), (("a",), {"file_path": "a"}), (("a", "b"), {"paths": ["a", "b"]})]
)
def test_a_permission_request_without_input(paths: tuple[str, ...], expected: dict[str, Any]) -> None:
    """If the input of a call is unknown, its permission request has the paths of the call as
    input."""
    asked = PermissionAsked(
        at=20, seq=1, attempt=1, turn=1, id="c", tool="x", kind="other", title="T", paths=paths
    )
    event = _translate(_started(), asked, _finished())[1]
    assert (event.type, event.payload.input, event.payload.reason) == ("permission_request", expected, "T")


_STATUS = {
    "success": "success",
    "failed": "error",
    "interrupted": "interrupted",
    "timed_out": "error",
    "max_turns": "max_turns",
    "over_budget": "max_budget",
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_has_a_status(outcome: str) -> None:
    """Each outcome has a status. An `error` event comes before `done` only if the status is
    `error`."""
    events = _translate(_started(), _finished(outcome=outcome, reason="why"))
    done = events[-1].payload
    assert done.status == _STATUS[outcome]
    assert [event.type for event in events[1:-1]] == (["error"] if done.status == "error" else [])
    assert done.result == ("" if outcome == "success" else None)
    assert done.resume_token == "s-1"


@pytest.mark.parametrize(
    ("outcome", "token"), [("interrupted", "before"), ("failed", None), ("success", None)]
)
def test_the_token_of_a_run_without_a_session(outcome: str, token: str | None) -> None:
    """If a run without a session was interrupted, `done` repeats the resume token that the run was
    started with. Otherwise there is none."""
    done = _translate(
        _started(session_id=None), _finished(outcome=outcome, session_id=None), resume="before"
    )[-1]
    assert done.payload.resume_token == token


def test_nothing_after_done() -> None:
    """Events after the end of the run are ignored."""
    text = Text(at=30, seq=2, attempt=1, turn=1, text="late")
    assert [event.type for event in _translate(_started(), _finished(), text, _finished())] == [
        "init",
        "done",
    ]


def test_events_that_break_off() -> None:
    """Events that stop before the end of the run still give an `error` and a `done` that is no
    success."""
    text = Text(at=40, seq=2, attempt=1, turn=1, text="half")
    events = _translate(_started(), text)
    assert [event.type for event in events] == ["init", "text_delta", "text", "error", "done"]
    assert events[-2].payload.code == "MISSING_DONE"
    done = events[-1].payload
    assert isinstance(done, Done)
    assert (done.status, done.duration_ms, done.usage.tool_uses, done.usage.tokens) == ("error", 30, 0, None)
    assert [event.type for event in _translate()] == ["error", "done"]


def test_disallowed_tools_are_in_init() -> None:
    """`init` lists the disallowed tools."""
    assert _translate(_started(), disallowed_tools=["glob"])[0].payload.capabilities.disallowed_tools == (
        "glob",
    )


def test_pieces_of_two_turns_are_two_messages() -> None:
    """A new turn begins a new message; a thought within a turn does not."""
    pieces = [Text(at=30, seq=n, attempt=1, turn=turn, text=str(n)) for n, turn in enumerate((1, 1, 2))]
    thought = Thought(at=30, seq=9, attempt=1, turn=1, subject=None, text="hm")
    events = _translate(_started(), pieces[0], thought, *pieces[1:], _finished())
    assert [event.payload.content for event in events if event.type == "text"] == ["01", "2"]
    assert isinstance(events[1].payload, TextDelta)


def test_the_tools_of_a_recorded_run() -> None:
    """In a recorded run each tool call has its result, and `done` has the tokens of all four
    requests."""
    events = _translate(*recorded("tools"))
    uses = [event.payload.tool_use_id for event in events if event.type == "tool_use"]
    assert sorted(uses) == sorted(e.payload.tool_use_id for e in events if e.type == "tool_result")
    tokens = events[-1].payload.usage.tokens
    assert (tokens.coverage, len(tokens.records), tokens.totals.input.total) == ("complete", 4, 4000)
