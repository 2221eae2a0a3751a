"""Runs as SubLang's agent events."""

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
from geminids.outcome import OUTCOMES, Failure
from golden import GOLDEN, check_golden, spoken
from random_events import RECORDED, any_events, lawful_runs, recorded, text_of

_NINE = {
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


def _lines(said: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said[:-1].split(b"\n")] if said else []


def _told(*events: Any, **how: Any) -> list[AgentEvent]:
    translator = Translator(**how)
    return [*translator.translate(events), *translator.finish()]


def _started(**fields: Any) -> Started:
    given = {"session_id": "s-1", "model": "pro", "cwd": "/repo", "cli_version": "0.61.0", "lane": "headless"}
    return Started(at=10, seq=0, attempt=1, turn=1, run_id="run-1", pid=1, **{**given, **fields})


def _finished(**fields: Any) -> Finished:
    given: dict[str, Any] = {
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
    return Finished(at=99, seq=9, attempt=1, turn=1, run_id="run-1", **{**given, **fields})


def _notice(level: Level, code: str, message: str = "what", **fields: Any) -> Notice:
    return Notice(at=20, seq=1, attempt=1, turn=1, level=level, code=code, message=message, **fields)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """What is said of a real run does not change by itself."""
    check_golden(GOLDEN / "agent-events" / f"{name}.jsonl", spoken("agent-events", name))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs_keep_the_order(name: str) -> None:
    """`init` is first and once, `done` is last and once, and every line is an event by the format's own guard."""
    lines = _lines(spoken("agent-events", name))
    kinds = [line["type"] for line in lines]
    assert all(map(is_agent_event, lines))
    assert (kinds[0], kinds.count("init")) == ("init", 1)
    assert (kinds[-1], kinds.count("done")) == ("done", 1)
    assert all(kind in _NINE or kind.startswith("geminids:") for kind in kinds)
    assert {line["sessionId"] for line in lines} == {"5f0c0f5e-0000-4000-8000-000000000001"}


@given(events=st.one_of(any_events, lawful_runs()))
def test_init_is_first_or_not_there(events: list[Any]) -> None:
    """Whatever comes: no second `init`, no session without a name, and whole messages are their pieces."""
    encoder = Encoder()
    lines = _lines(encoder.feed(events) + encoder.finish())
    kinds = [line["type"] for line in lines]
    assert "init" not in kinds[1:]
    assert all(map(is_agent_event, lines))
    assert all(line["sessionId"] for line in lines)
    pieces = "".join(line["payload"]["delta"] for line in lines if line["type"] == "text_delta")
    assert "".join(line["payload"]["content"] for line in lines if line["type"] == "text") == pieces


@given(events=lawful_runs())
def test_every_text_is_told(events: list[Any]) -> None:
    """The pieces end with the text of the last attempt."""
    pieces = [event.payload.delta for event in _told(*events) if event.type == "text_delta"]
    assert "".join(pieces).endswith(text_of(events))


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_written_can_be_read(name: str) -> None:
    """Decoding gives typed payloads, and encoding those the same bytes."""
    for line in spoken("agent-events", name).splitlines():
        event = decode_agent_event(line)
        assert event.type.startswith("geminids:") or isinstance(event.payload, msgspec.Struct)
        again = encode_agent_event(event)
        assert json.loads(again) == json.loads(line)


def test_what_is_no_event_is_not_read() -> None:
    """A line without a payload, or a payload of another shape, is an error of msgspec's."""
    for line in (b"{}", b"oops", b'{"type":"text","agent":"a","timestamp":1,"sessionId":"s","payload":{}}'):
        with pytest.raises(msgspec.MsgspecError):
            decode_agent_event(line)


@pytest.mark.parametrize(
    "value", [None, [], {}, {"type": "x", "agent": "a", "timestamp": True, "sessionId": "s", "payload": 1}]
)
def test_the_guard_refuses(value: Any) -> None:
    """Four fields of the right type and a payload, or it is no event."""
    assert not is_agent_event(value)


def test_an_unknown_session_waits_for_its_name() -> None:
    """Where the spawn does not know session and model, `init` comes when the CLI has told them."""
    begun = _started(session_id=None, model=None)
    events = _told(
        begun, _notice("debug", "session", session=SessionStart("s-9", "flash")), _finished(session_id="s-9")
    )
    assert [(event.type, event.session_id) for event in events] == [("init", "s-9"), ("done", "s-9")]
    assert events[0].payload.model == "flash"


def test_a_session_that_is_never_told() -> None:
    """Then the run's own id stands for it, and the model is unknown, not empty."""
    text = Text(at=30, seq=2, attempt=1, turn=1, text="hi")
    events = _told(_started(session_id=None, model=None), text, _finished(session_id=None))
    assert [event.type for event in events] == ["init", "text_delta", "text", "done"]
    assert {event.session_id for event in events} == {"run-1"}
    assert events[0].payload.model == "unknown"
    assert events[-1].payload.resume_token is None


def test_a_run_that_was_never_started() -> None:
    """No `init`, an error of the set-up, and the `done`."""
    failure = Failure(kind="cli_missing", message="no CLI", retryable=False, hint="Install it.")
    events = _told(
        _notice("warning", "lane"),
        _finished(outcome="failed", failure=failure, session_id=None, exit_code=None),
    )
    assert [event.type for event in events] == ["geminids:notice", "error", "done"]
    assert (events[1].payload.code, events[1].payload.recoverable) == ("GEMINI_STREAM_ERROR", False)
    assert {event.session_id for event in events} == {"run-1"}


def test_what_comes_before_the_start_is_told_after_init() -> None:
    """`init` is first, whatever else is known already."""
    events = _told(_notice("warning", "workspace"), _started(), _finished())
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
    """Bad lines and complaints of the CLI are errors that can be recovered from; news of ours are an extension."""
    between = _told(_started(), notice, _finished())[1:-1]
    assert [event.type for event in between] == ([kind] if kind else [])
    if kind == "error":
        assert (between[0].payload.code, between[0].payload.recoverable) == (code, True)


@pytest.mark.parametrize(
    ("subject", "text", "summary"), [("Plan", "look", "Plan: look"), (None, "look", "look")]
)
def test_thoughts(subject: str | None, text: str, summary: str) -> None:
    """Subject and text are one summary; a subagent's names its call."""
    thought = Thought(at=20, seq=1, attempt=1, turn=1, subject=subject, text=text, parent="call-1")
    event = _told(_started(), thought, _finished())[1]
    assert event.payload.summary == summary
    assert msgspec.to_builtins(event.metadata) == {"parentToolUseId": "call-1"}


def test_a_result_without_a_call() -> None:
    """The call is told first; a tool that was cut off is an error, and says so."""
    end = ToolFinished(
        at=20, seq=1, attempt=1, turn=1, id="c", name="glob", input={"a": 1}, status="cancelled"
    )
    use, result = _told(_started(), end, _finished())[1:3]
    assert (use.type, use.payload.input) == ("tool_use", {"a": 1})
    assert (result.payload.status, result.payload.output) == ("error", None)
    assert msgspec.to_builtins(result.metadata) == {"cancelled": True}


@pytest.mark.parametrize(
    ("paths", "wanted"), [((), {}), (("a",), {"file_path": "a"}), (("a", "b"), {"paths": ["a", "b"]})]
)
def test_a_question_whose_input_is_not_known(paths: tuple[str, ...], wanted: dict[str, Any]) -> None:
    """What the question says of the call stands for its input."""
    asked = PermissionAsked(
        at=20, seq=1, attempt=1, turn=1, id="c", tool="x", kind="other", title="T", paths=paths
    )
    event = _told(_started(), asked, _finished())[1]
    assert (event.type, event.payload.input, event.payload.reason) == ("permission_request", wanted, "T")


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
    """An error stands before the `done` where the status is `error`, and nowhere else."""
    events = _told(_started(), _finished(outcome=outcome, reason="why"))
    done = events[-1].payload
    assert done.status == _STATUS[outcome]
    assert [event.type for event in events[1:-1]] == (["error"] if done.status == "error" else [])
    assert done.result == ("" if outcome == "success" else None)
    assert done.resume_token == "s-1"


@pytest.mark.parametrize(
    ("outcome", "token"), [("interrupted", "before"), ("failed", None), ("success", None)]
)
def test_the_token_of_a_run_without_a_session(outcome: str, token: str | None) -> None:
    """What the run was to go on with is still good where it was interrupted, and only there."""
    done = _told(_started(session_id=None), _finished(outcome=outcome, session_id=None), resume="before")[-1]
    assert done.payload.resume_token == token


def test_nothing_after_done() -> None:
    """What comes later is not told."""
    text = Text(at=30, seq=2, attempt=1, turn=1, text="late")
    assert [event.type for event in _told(_started(), _finished(), text, _finished())] == ["init", "done"]


def test_events_that_break_off() -> None:
    """A `done` there is all the same, and it is no success."""
    text = Text(at=40, seq=2, attempt=1, turn=1, text="half")
    events = _told(_started(), text)
    assert [event.type for event in events] == ["init", "text_delta", "text", "error", "done"]
    assert events[-2].payload.code == "MISSING_DONE"
    done = events[-1].payload
    assert isinstance(done, Done)
    assert (done.status, done.duration_ms, done.usage.tool_uses, done.usage.tokens) == ("error", 30, 0, None)
    assert [event.type for event in _told()] == ["error", "done"]


def test_disallowed_tools_are_in_init() -> None:
    """Where they are known."""
    assert _told(_started(), disallowed_tools=["glob"])[0].payload.capabilities.disallowed_tools == ("glob",)


def test_pieces_of_two_turns_are_two_messages() -> None:
    """A new turn or attempt ends a message; a thought in between does not."""
    pieces = [Text(at=30, seq=n, attempt=1, turn=turn, text=str(n)) for n, turn in enumerate((1, 1, 2))]
    thought = Thought(at=30, seq=9, attempt=1, turn=1, subject=None, text="hm")
    events = _told(_started(), pieces[0], thought, *pieces[1:], _finished())
    assert [event.payload.content for event in events if event.type == "text"] == ["01", "2"]
    assert isinstance(events[1].payload, TextDelta)


def test_a_recording_is_its_own_proof() -> None:
    """The tools of a real run: six calls, each with its result, and the tokens of four requests."""
    events = _told(*recorded("tools"))
    uses = [event.payload.tool_use_id for event in events if event.type == "tool_use"]
    assert sorted(uses) == sorted(e.payload.tool_use_id for e in events if e.type == "tool_result")
    tokens = events[-1].payload.usage.tokens
    assert (tokens.coverage, len(tokens.records), tokens.totals.input.total) == ("complete", 4, 4000)
