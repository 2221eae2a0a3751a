"""Encode runs as Untether's events: one `started`, actions, and one `completed` at the end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.dialects.dialect import encode_run
from geminids.dialects.untether import (
    ActionEvent,
    CompletedEvent,
    StartedEvent,
    UntetherEvent,
    encode_untether_event,
    extract_resume_token,
    format_resume_line,
    translate,
)
from geminids.events.model import (
    Event,
    Finished,
    Notice,
    SessionStart,
    Started,
    Text,
    ToolFinished,
    ToolStarted,
    Usage,
)
from geminids.outcome import Failure
from golden import GOLDEN, check_golden, encode_recording
from random_events import RECORDED, any_events, recorded, text_of, valid_runs

_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_decoder = msgspec.json.Decoder(UntetherEvent)


def _started(**fields: Any) -> Started:
    defaults = {
        "run_id": "run-1",
        "session_id": "abc12345-6",
        "model": "flash",
        "cwd": "/repo",
        "cli_version": "0.61.0",
        "transport": "headless",
        "pid": 42,
    }
    return Started(**_AT, **{**defaults, **fields})


def _finished(**fields: Any) -> Finished:
    defaults: dict[str, Any] = {
        "run_id": "run-1",
        "outcome": "success",
        "failure": None,
        "reason": None,
        "text": "",
        "answer": "",
        "session_id": "abc12345-6",
        "clear_session": False,
        "usage": None,
        "attempts": 1,
        "exit_code": 0,
        "duration_ms": 3000,
        "ended": (),
        "complete": True,
    }
    return Finished(**_AT, **{**defaults, **fields})


def _tool(name: str, arguments: dict[str, Any] | None, **fields: Any) -> list[Event]:
    finish: dict[str, Any] = {"status": "ok", "output": "fine", **fields}
    return [
        ToolStarted(**_AT, id="t1", name=name, kind="other", title="title", input=arguments),
        ToolFinished(**_AT, id="t1", name=name, input=arguments, **finish),
    ]


def _notice(code: str, level: Any = "warning", message: str = "words") -> Notice:
    return Notice(**_AT, level=level, code=code, message=message)


def _session(session_id: str, model: str) -> Notice:
    return msgspec.structs.replace(_notice("session", "debug"), session=SessionStart(session_id, model))


def _actions(events: list[Event]) -> list[ActionEvent]:
    return [event for event in translate(events) if isinstance(event, ActionEvent)]


def _completed(*events: Event) -> CompletedEvent:
    last = list(translate(events))[-1]
    assert isinstance(last, CompletedEvent)
    return last


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """The output for a recorded run equals its golden file."""
    check_golden(GOLDEN / "untether" / f"{name}.jsonl", encode_recording("untether", name))


def test_the_example_of_the_format() -> None:
    """The example of the format's document is encoded with every field, in order, including
    nulls."""
    usage = Usage(input=100, cached=20, output=10, total=110)
    events = [
        _started(session_id="abc123"),
        _session("abc123", "gemini-2.5-pro"),
        *_tool("write_file", {"file_path": "src/a.py"}, output="ok"),
        _finished(text="Done.", session_id="abc123", usage=usage),
    ]
    token = '{"engine":"gemini","value":"abc123","is_continue":false}'
    change = (
        '"title":"write: src/a.py","detail":{"tool_name":"write_file","input":{"file_path":"src/a.py"},"tool_id":"t1",'
        '"changes":[{"path":"src/a.py","kind":"update"}]'
    )
    assert b"".join(encode_run("untether", events)).decode().splitlines() == [
        f'{{"type":"started","engine":"gemini","resume":{token},"title":"gemini",'
        '"meta":{"model":"gemini-2.5-pro","pid":42}}',
        f'{{"type":"action","engine":"gemini","action":{{"id":"t1","kind":"file_change",{change}}}}},'
        '"phase":"started","ok":null,"message":null,"level":null}',
        f'{{"type":"action","engine":"gemini","action":{{"id":"t1","kind":"file_change",{change},'
        '"output_preview":"ok"}},"phase":"completed","ok":true,"message":null,"level":null}',
        f'{{"type":"completed","engine":"gemini","ok":true,"answer":"Done.","resume":{token},"error":null,'
        '"usage":{"usage":{"input_tokens":100,"output_tokens":10,"cache_read_tokens":20},"duration_ms":3000,"total_cost_usd":null}}',
    ]


@pytest.mark.parametrize(
    ("approval", "mode"), [("yolo", "full access"), ("auto_edit", "edit files"), ("plan", None)]
)
def test_the_permission_mode(approval: str, mode: str | None) -> None:
    """The metadata have a permission mode only if the agent may do more than read."""
    (started, *_) = translate([_started(approval=approval), _notice("session"), _finished()])
    assert isinstance(started, StartedEvent)
    assert json.loads(encode_untether_event(started))["meta"].get("permissionMode") == mode


def test_a_session_is_reported_once_it_is_known() -> None:
    """In a warm run, `started` is emitted once, when the CLI reports its session."""
    events = [
        _started(session_id=None, model=None),
        _session("s1", "flash"),
        _session("s2", "flash"),
        _finished(session_id="s2"),
    ]
    started, completed = translate(events)
    assert isinstance(started, StartedEvent) and isinstance(completed, CompletedEvent)
    assert started.resume.value == "s1" and started.meta is not None and started.meta["model"] == "flash"
    assert completed.resume is not None and completed.resume.value == "s2"


def test_a_run_that_never_began_has_no_started() -> None:
    """A run that never started has no `started` event, and its `completed` event has the error."""
    failure = Failure(kind="cli_missing", message="no gemini was found", retryable=False, hint="Install it.")
    (completed,) = translate([_finished(outcome="failed", failure=failure, session_id=None, exit_code=None)])
    assert completed == CompletedEvent(
        ok=False, answer="", error="gemini failed (cli_missing): no gemini was found"
    )


def test_the_output_preview_has_500_characters() -> None:
    """The output preview has at most 500 characters. Without an output it is missing."""
    detail = _actions([_started(), *_tool("read_file", {"file_path": "a"}, output="é" * 501)])[
        -1
    ].action.detail
    assert json.loads(msgspec.json.encode(detail))["output_preview"] == "é" * 500
    detail = _actions([_started(), *_tool("read_file", {"file_path": "a"}, output=None)])[-1].action.detail
    assert "output_preview" not in json.loads(msgspec.json.encode(detail))


@pytest.mark.parametrize("status", ["failed", "denied", "cancelled"])
def test_only_a_successful_call_is_ok(status: Any) -> None:
    """Only a successful call is `ok`. Otherwise the message has the error."""
    completed = _actions([_started(), *_tool("glob", {}, status=status, error="because")])[-1]
    assert (completed.ok, completed.message, completed.phase) == (False, "because", "completed")


def test_a_command_that_failed_shows_its_exit_code() -> None:
    """A command with a bad exit code is `ok`, because the CLI calls it a success. The detail has
    the exit code."""
    completed = _actions([_started(), *_tool("run_shell_command", {"command": "false"}, exit_code=3)])[-1]
    assert completed.ok is True
    assert json.loads(msgspec.json.encode(completed.action.detail))["exit_code"] == 3


def test_an_input_that_arrives_late_changes_the_title() -> None:
    """In a warm run, the title of a call has the path first, and the input when that is known."""
    started = ToolStarted(
        **_AT, id="t1", name="read_file", kind="read", title="Read a.py", input=None, paths=("/repo/a.py",)
    )
    ended = ToolFinished(**_AT, id="t1", name="read_file", input={"file_path": "b.py"}, status="ok")
    titles = [event.action.title for event in _actions([_started(), started, ended])]
    assert titles == ["read: /repo/a.py", "read: b.py"]


def test_calls_without_id_and_results_without_call_are_ignored() -> None:
    """Calls without an id and results without a call are ignored, so that every completed action
    has a start."""
    ended = ToolFinished(**_AT, id="t9", name="glob", input={}, status="ok")
    started = ToolStarted(**_AT, id="", name="glob", kind="search", title="", input={})
    assert _actions([_started(), started, ended]) == []


@pytest.mark.parametrize(
    ("code", "level", "warning"),
    [
        ("noise", "info", "warning"),
        ("encoding", "info", "warning"),
        ("protocol", "warning", "warning"),
        ("cli", "error", "error"),
        ("retry", "warning", "warning"),
        ("stderr", "debug", None),
        ("tool_error", "info", None),
    ],
)
def test_unexpected_output_is_a_warning(code: str, level: Any, warning: str | None) -> None:
    """Unexpected output and errors of the CLI become completed warnings, numbered from 1. They do
    not end the run."""
    out = list(translate([_started(), _notice(code, level), _notice(code, level), _finished(text="x")]))
    notes = [event for event in out if isinstance(event, ActionEvent)]
    expected = [
        ("gemini.note.1", "warning", "words", warning),
        ("gemini.note.2", "warning", "words", warning),
    ]
    shown = [(note.action.id, note.action.kind, note.action.title, note.level) for note in notes]
    assert shown == (expected if warning else [])
    assert all((note.phase, note.ok, note.message) == ("completed", False, "words") for note in notes)
    assert isinstance(out[-1], CompletedEvent) and out[-1].ok


@pytest.mark.parametrize("code", ["unknown_event", "unknown_role", "unknown_update"])
@pytest.mark.parametrize("level", ["info", "warning"])
def test_unknown_events_are_only_logged(code: str, level: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An event of an unknown type gives no event and no warning in the log, only a debug message."""
    with caplog.at_level("DEBUG", "geminids.dialects"):
        kinds = [type(event) for event in translate([_started(), _notice(code, level), _finished(text="x")])]
    assert kinds == [StartedEvent, CompletedEvent]
    assert [(record.levelname, "words" in record.message) for record in caplog.records] == [("DEBUG", True)]


@pytest.mark.parametrize("code", ["noise", "protocol", "encoding", "line_too_long"])
def test_malformed_lines_are_logged_as_warnings(code: str, caplog: pytest.LogCaptureFixture) -> None:
    """A malformed line is a warning in the log and in the events, and the run goes on."""
    with caplog.at_level("DEBUG", "geminids.dialects"):
        note, completed = list(translate([_notice(code, "info"), _finished()]))
    assert isinstance(note, ActionEvent) and isinstance(completed, CompletedEvent)
    assert (note.action.kind, note.level, completed.ok) == ("warning", "warning", True)
    assert [(record.levelname, "words" in record.message) for record in caplog.records] == [("WARNING", True)]


def test_an_error_event_explains_an_end_without_a_result() -> None:
    """The message of the last `error` event is the first line of `error` if the run has no result.
    After a result, it is only a warning. A warning of the CLI never explains the end."""
    errors = [_notice("cli", "error", "API key invalid"), _notice("cli", "warning", "slow")]
    failure = Failure(kind="cut_off", message="m", retryable=True, hint="h")
    completed = _completed(_started(), *errors, _finished(outcome="failed", failure=failure))
    assert (completed.error or "").splitlines()[0] == "API key invalid"
    assert _completed(_started(), *errors, _finished()).error is None


def test_a_warning_has_the_whole_line() -> None:
    """A warning about an unexpected line has that line in `detail.line`. Other warnings have no
    line."""
    line_warning, other_warning = _actions([_notice("noise", "info"), _notice("cli", "error")])
    assert json.loads(msgspec.json.encode(line_warning.action.detail)) == {"code": "noise", "line": "words"}
    assert json.loads(msgspec.json.encode(other_warning.action.detail)) == {"code": "cli"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"outcome": "interrupted", "reason": "enough"}, "gemini interrupted: enough"),
        ({"outcome": "timed_out", "reason": "timed out after 3 s"}, "gemini timed_out: timed out after 3 s"),
        ({"outcome": "max_turns"}, "gemini max_turns"),
    ],
)
def test_other_outcomes_are_named(fields: dict[str, Any], error: str) -> None:
    """A run that was interrupted, timed out or reached its turn limit is not `ok`, and the error
    names the outcome."""
    completed = _completed(_started(), _finished(**fields))
    assert (completed.ok, completed.error) == (False, error)


@pytest.mark.parametrize(
    ("code", "first", "warned"),
    [
        (-9, "gemini failed (rc=-9, SIGKILL).", True),
        (-200, "gemini failed (rc=-200).", True),
        (7, "gemini failed (rc=7).", True),
        (0, "gemini finished without a result event", False),
        (None, "gemini finished without a result event", False),
    ],
)
def test_an_end_without_a_result(code: int | None, first: str, warned: bool) -> None:
    """Without a result, the error has the exit code, the session, and the beginning of stderr
    without paths and URLs, and without the lines of every run. A bad exit code also gives a
    warning, which is the first line only."""
    stderr = (
        "YOLO mode is enabled. All tool calls will be automatically approved.\n" * 2
        + "Ripgrep is not available. Falling back to GrepTool.\n"
        + "see https://example.org/x?y=1 and /home/me/.gemini/a.json: and/or ~/b ./c (file:///tmp/x.js:1)"
        + "y" * 400
    )
    failure = Failure(kind="crashed", message="m", retryable=True, hint="h", stderr_tail=stderr)
    ending = _finished(outcome="failed", failure=failure, exit_code=code, text="half")
    *before, completed = translate([_started(), ending])
    assert isinstance(completed, CompletedEvent) and completed.error is not None
    lines = completed.error.splitlines()
    assert lines[:2] == [first, "session: abc12345"]
    assert lines[2].startswith("see [url] and [path]: and/or [path] [path] ([url])yyy")
    assert len(lines[2]) == 300
    notes = [event for event in before if isinstance(event, ActionEvent)]
    assert [note.message for note in notes] == ([first] if warned else [])
    assert completed.answer == "half"


def test_a_session_that_is_gone_is_not_offered() -> None:
    """If the session is gone, `completed` has no resume token."""
    failure = Failure(kind="session_not_found", message="gone", retryable=False, hint="h")
    completed = _completed(_started(), _finished(outcome="failed", failure=failure, clear_session=True))
    assert completed.resume is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        (Usage(), None),
        (Usage(input=0, cached=0, output=0, thinking=0, tool=0, total=0, requests=1), None),
        (Usage(input=1, output=0), {"input_tokens": 1, "output_tokens": 0}),
        (Usage(input=1, output=2), {"input_tokens": 1, "output_tokens": 2}),
        (Usage(input=1, output=2, cached=0), {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0}),
        (Usage(input=1), {"input_tokens": 1, "output_tokens": None}),
        (Usage(input=1, output=2, cached=0, unknown=1), {"input_tokens": None, "output_tokens": None}),
    ],
)
def test_usage_that_is_not_known_is_null(usage: Usage | None, expected: Any) -> None:
    """Unknown usage is null, never 0. A count of 0 is reported as 0."""
    completed = json.loads(encode_untether_event(_completed(_started(), _finished(usage=usage))))
    expected = expected and {"usage": expected, "duration_ms": 3000, "total_cost_usd": None}
    assert completed["usage"] == expected


def test_a_recording_without_times_and_process() -> None:
    """The duration and the process id are left out if the recording does not contain them."""
    events = [_started(pid=0), _session("abc123", "m"), _finished(usage=Usage(input=1), duration_ms=0)]
    first, last = (json.loads(encode_untether_event(event)) for event in translate(events))
    assert first["meta"] == {"model": "m"}
    assert last["usage"] == {
        "usage": {"input_tokens": 1, "output_tokens": None},
        "total_cost_usd": None,
    }


def test_the_answer_is_all_text_of_the_last_attempt() -> None:
    """The answer is all text of the last attempt, also without an end of the run, which is then not
    `ok`."""
    events = [Text(**_AT, text="lost"), _started(), Text(**_AT, text="half "), Text(**_AT, text="of it")]
    completed = _completed(_started(), *events)
    assert (completed.ok, completed.answer) == (False, "half of it")
    assert completed.error == "gemini: the events end before the run has ended"
    assert completed.resume is not None and completed.resume.value == "abc12345-6"


def test_a_pending_permission_is_reported() -> None:
    """While the run waits for a permission, an action says for which command."""
    (pending,) = [event for event in _actions(list(recorded("asked"))) if event.phase == "updated"][1:]
    assert (pending.message, pending.level) == ("waits for a permission: echo out; exit 3", "info")


def test_the_resume_line_leads_back_to_the_session() -> None:
    """The resume token can be extracted from a text with its resume line."""
    resume = _completed(_started(), _finished()).resume
    assert resume is not None
    assert extract_resume_token(f"Done.\n\n{format_resume_line(resume)}") == resume


def test_lone_surrogates_and_deep_inputs_do_not_raise() -> None:
    """A lone surrogate becomes U+FFFD, and an input that is nested too deeply becomes {}."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    events = [_started(), *_tool("x", deep), *_tool("x", {"q": "\ud800"}), _finished(text="\ud800")]
    lines = b"".join(encode_run("untether", events)).splitlines()
    assert json.loads(lines[-1])["answer"] == "\ufffd"
    assert json.loads(lines[1])["action"]["detail"]["input"] == {}
    assert json.loads(lines[3])["action"]["detail"]["input"] == {"q": "\ufffd"}
    while deep:  # freed step by step, because CPython would recurse as deep
        deep = deep.pop("a")


@given(any_events)
def test_no_input_raises(events: list[Event]) -> None:
    """Any events give one `completed` at the end, at most one `started`, and no action that
    completes without a start."""
    out = [_decoder.decode(line) for line in b"".join(encode_run("untether", events)).splitlines()]
    kinds = [type(event) for event in out]
    assert kinds.count(CompletedEvent) == 1 and kinds[-1] is CompletedEvent
    assert kinds.count(StartedEvent) <= 1
    started: set[str] = set()
    for event in out:
        if isinstance(event, ActionEvent) and event.action.kind != "warning":
            if event.phase == "completed":
                assert event.action.id in started
            started.add(event.action.id)


@given(valid_runs())
def test_text_is_kept_to_the_character(events: list[Event]) -> None:
    """For a valid run, the answer is the text to the character, and every call has a start and an
    end."""
    out = list(translate(events))
    assert isinstance(out[-1], CompletedEvent)
    assert out[-1].answer == text_of(events)
    calls = sum(isinstance(event, ToolStarted) for event in events)
    tools = [event for event in out if isinstance(event, ActionEvent) and event.action.kind != "warning"]
    assert sum(event.phase == "started" for event in tools) == calls
    assert sum(event.phase == "completed" for event in tools) == calls
