"""Untether's events: one started, actions with their truth, one completed, last."""

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
from golden import GOLDEN, check_golden, spoken
from random_events import RECORDED, any_events, lawful_runs, recorded, text_of

_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_decoder = msgspec.json.Decoder(UntetherEvent)


def _started(**fields: Any) -> Started:
    given = {
        "run_id": "run-1",
        "session_id": "abc12345-6",
        "model": "flash",
        "cwd": "/repo",
        "cli_version": "0.61.0",
        "lane": "headless",
        "pid": 42,
    }
    return Started(**_AT, **{**given, **fields})


def _finished(**fields: Any) -> Finished:
    given: dict[str, Any] = {
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
    return Finished(**_AT, **{**given, **fields})


def _tool(name: str, given: dict[str, Any] | None, **over: Any) -> list[Event]:
    fields: dict[str, Any] = {"status": "ok", "output": "fine", **over}
    return [
        ToolStarted(**_AT, id="t1", name=name, kind="other", title="told", input=given),
        ToolFinished(**_AT, id="t1", name=name, input=given, **fields),
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
def test_a_real_run_in_untethers_tongue(name: str) -> None:
    """The golden set: recordings of the real CLI, byte for byte."""
    check_golden(GOLDEN / "untether" / f"{name}.jsonl", spoken("untether", name))


def test_the_example_of_the_format() -> None:
    """Every field of the document's example, in its order, nulls included."""
    usage = Usage(input=100, cached=20, output=10, total=110)
    events = [
        _started(session_id="abc123"),
        _session("abc123", "gemini-2.5-pro"),
        *_tool("write_file", {"file_path": "src/a.py"}, output="ok"),
        _finished(text="Done.", session_id="abc123", usage=usage),
    ]
    token = '{"engine":"gemini","value":"abc123","is_continue":false}'
    change = (
        '"detail":{"tool_name":"write_file","input":{"file_path":"src/a.py"},"tool_id":"t1",'
        '"changes":[{"path":"src/a.py","kind":"update"}]'
    )
    assert b"".join(encode_run("untether", events)).decode().splitlines() == [
        f'{{"type":"started","engine":"gemini","resume":{token},"title":"gemini",'
        '"meta":{"model":"gemini-2.5-pro","pid":42}}',
        f'{{"type":"action","engine":"gemini","action":{{"id":"t1","kind":"file_change","title":"src/a.py",{change}}}}},'
        '"phase":"started","ok":null,"message":null,"level":null}',
        f'{{"type":"action","engine":"gemini","action":{{"id":"t1","kind":"file_change","title":"src/a.py",{change},'
        '"output_preview":"ok"}},"phase":"completed","ok":true,"message":null,"level":null}',
        f'{{"type":"completed","engine":"gemini","ok":true,"answer":"Done.","resume":{token},"error":null,'
        '"usage":{"usage":{"input_tokens":100,"output_tokens":10,"cache_read_tokens":20},"duration_ms":3000}}',
    ]


@pytest.mark.parametrize(
    ("approval", "mode"), [("yolo", "full access"), ("auto_edit", "edit files"), ("plan", None)]
)
def test_the_permission_mode_stands_in_the_footer(approval: str, mode: str | None) -> None:
    """Only where the agent may do more than read."""
    (started, *_) = translate([_started(approval=approval), _notice("session"), _finished()])
    assert isinstance(started, StartedEvent)
    assert json.loads(encode_untether_event(started))["meta"].get("permissionMode") == mode


def test_a_session_that_is_known_late_is_told_when_it_is() -> None:
    """The warm lane has no session at the spawn: the CLI's own word starts the run, once."""
    events = [
        _started(session_id=None, model=None),
        _session("s1", "flash"),
        _session("s2", "flash"),
        _finished(session_id="s2"),
    ]
    started, completed = translate(events)
    assert isinstance(started, StartedEvent) and isinstance(completed, CompletedEvent)
    assert started.resume.value == "s1" and started.meta is not None and started.meta.model == "flash"
    assert completed.resume is not None and completed.resume.value == "s2"


def test_a_run_that_never_began_has_no_started() -> None:
    """The CLI has not loaded: there is no session to name, and the end is told all the same."""
    failure = Failure(kind="cli_missing", message="no gemini was found", retryable=False, hint="Install it.")
    (completed,) = translate([_finished(outcome="failed", failure=failure, session_id=None, exit_code=None)])
    assert completed == CompletedEvent(
        ok=False, answer="", error="gemini failed (cli_missing): no gemini was found"
    )


def test_the_preview_is_of_500_characters_and_true() -> None:
    """The output as the model was told it, cut; none where there is none."""
    over = _actions([_started(), *_tool("read_file", {"file_path": "a"}, output="é" * 501)])[-1].action.detail
    assert json.loads(msgspec.json.encode(over))["output_preview"] == "é" * 500
    over = _actions([_started(), *_tool("read_file", {"file_path": "a"}, output=None)])[-1].action.detail
    assert "output_preview" not in json.loads(msgspec.json.encode(over))


@pytest.mark.parametrize("status", ["failed", "denied", "cancelled"])
def test_only_what_went_well_is_ok(status: Any) -> None:
    """And whatever else it was, the message says why."""
    over = _actions([_started(), *_tool("glob", {}, status=status, error="because")])[-1]
    assert (over.ok, over.message, over.phase) == (False, "because", "completed")


def test_a_command_that_failed_shows_its_exit_code() -> None:
    """The CLI calls it a success, and so does `ok`; the chat shows "(exit 3)"."""
    over = _actions([_started(), *_tool("run_shell_command", {"command": "false"}, exit_code=3)])[-1]
    assert over.ok is True
    assert json.loads(msgspec.json.encode(over.action.detail))["exit_code"] == 3


def test_an_input_that_is_known_late_makes_the_title_then() -> None:
    """On the warm lane a call begins without its input: the path stands in, then the truth."""
    began = ToolStarted(
        **_AT, id="t1", name="read_file", kind="read", title="Read a.py", input=None, paths=("/repo/a.py",)
    )
    ended = ToolFinished(**_AT, id="t1", name="read_file", input={"file_path": "b.py"}, status="ok")
    titles = [event.action.title for event in _actions([_started(), began, ended])]
    assert titles == ["read: `a.py`", "read: `b.py`"]


def test_calls_without_id_and_results_without_call_are_passed_over() -> None:
    """As in the original: every completed action has begun."""
    ended = ToolFinished(**_AT, id="t9", name="glob", input={}, status="ok")
    began = ToolStarted(**_AT, id="", name="glob", kind="search", title="", input={})
    assert _actions([_started(), began, ended]) == []


@pytest.mark.parametrize(
    ("code", "level", "told"),
    [
        ("noise", "info", "warning"),
        ("unknown_event", "info", "warning"),
        ("protocol", "warning", "warning"),
        ("cli", "error", "error"),
        ("retry", "warning", "warning"),
        ("stderr", "debug", None),
        ("tool_error", "info", None),
    ],
)
def test_what_is_odd_is_a_warning(code: str, level: Any, told: str | None) -> None:
    """Numbered from 1, over at once, never the end of the run."""
    out = list(translate([_started(), _notice(code, level), _notice(code, level), _finished(text="x")]))
    notes = [event for event in out if isinstance(event, ActionEvent)]
    expected = [("gemini.note.1", "warning", "words", told), ("gemini.note.2", "warning", "words", told)]
    shown = [(note.action.id, note.action.kind, note.action.title, note.level) for note in notes]
    assert shown == (expected if told else [])
    assert all((note.phase, note.ok, note.message) == ("completed", False, "words") for note in notes)
    assert isinstance(out[-1], CompletedEvent) and out[-1].ok


def test_an_odd_line_is_shown_whole() -> None:
    """In `detail.line`; what is no line has none."""
    line, other = _actions([_notice("noise", "info"), _notice("cli", "error")])
    assert json.loads(msgspec.json.encode(line.action.detail)) == {"code": "noise", "line": "words"}
    assert json.loads(msgspec.json.encode(other.action.detail)) == {"code": "cli"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"outcome": "interrupted", "reason": "enough"}, "gemini interrupted: enough"),
        ({"outcome": "timed_out", "reason": "timed out after 3 s"}, "gemini timed_out: timed out after 3 s"),
        ({"outcome": "max_turns"}, "gemini max_turns"),
    ],
)
def test_another_end_is_named(fields: dict[str, Any], error: str) -> None:
    """Not a success, and the text says which end it was."""
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
def test_an_end_without_result_tells_the_exit(code: int | None, first: str, warned: bool) -> None:
    """The exit, the session, and the beginning of stderr without places; a bad exit is a warning too."""
    stderr = (
        "see https://example.org/x?y=1 and /home/me/.gemini/a.json: and/or ~/b ./c (file:///tmp/x.js:1)"
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
    assert [note.message for note in notes] == ([completed.error] if warned else [])
    assert completed.answer == "half"


def test_a_session_that_is_gone_is_not_offered() -> None:
    """A resume line for it would fail again."""
    failure = Failure(kind="session_not_found", message="gone", retryable=False, hint="h")
    completed = _completed(_started(), _finished(outcome="failed", failure=failure, clear_session=True))
    assert completed.resume is None


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, None),
        (Usage(), None),
        (Usage(input=1, output=2), {"input_tokens": 1, "output_tokens": 2}),
        (Usage(input=1, output=2, cached=0), {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0}),
        (Usage(input=1), {"input_tokens": 1, "output_tokens": None}),
        (Usage(input=1, output=2, cached=0, unknown=1), {"input_tokens": None, "output_tokens": None}),
    ],
)
def test_usage_that_is_not_known_is_null(usage: Usage | None, told: Any) -> None:
    """Never 0; 0 where it was counted."""
    completed = json.loads(encode_untether_event(_completed(_started(), _finished(usage=usage))))
    assert completed["usage"] == (told and {"usage": told, "duration_ms": 3000})


def test_the_answer_is_all_text_of_the_last_attempt() -> None:
    """Also where no end was heard: then it is not a success."""
    said = [Text(**_AT, text="lost"), _started(), Text(**_AT, text="half "), Text(**_AT, text="of it")]
    completed = _completed(_started(), *said)
    assert (completed.ok, completed.answer) == (False, "half of it")
    assert completed.error == "gemini: the events end before the run does"
    assert completed.resume is not None and completed.resume.value == "abc12345-6"


def test_a_permission_that_is_awaited_is_told() -> None:
    """The run waits for somebody: the chat shows for what."""
    (waits,) = [event for event in _actions(list(recorded("asked"))) if event.phase == "updated"][1:]
    assert (waits.message, waits.level) == ("waits for a permission: echo out; exit 3", "info")


def test_the_resume_line_leads_back_to_the_session() -> None:
    """What a chat shows is found in its text again."""
    resume = _completed(_started(), _finished()).resume
    assert resume is not None
    assert extract_resume_token(f"Done.\n\n{format_resume_line(resume)}") == resume


def test_half_characters_and_bottomless_inputs_do_not_raise() -> None:
    """Told as well as they can be: text to the character, an input that no JSON can hold as an empty one."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    events = [_started(), *_tool("x", deep), *_tool("x", {"q": "\ud800"}), _finished(text="\ud800")]
    lines = b"".join(encode_run("untether", events)).splitlines()
    assert json.loads(lines[-1])["answer"] == "\ufffd"
    assert json.loads(lines[1])["action"]["detail"]["input"] == {}
    assert json.loads(lines[3])["action"]["detail"]["input"] == {"q": "\ufffd"}
    while deep:  # freed step by step: CPython would go as deep
        deep = deep.pop("a")


@given(any_events)
def test_nothing_that_is_heard_raises(events: list[Event]) -> None:
    """Whatever comes: one completed, last; at most one started; each action that ends has begun."""
    out = [_decoder.decode(line) for line in b"".join(encode_run("untether", events)).splitlines()]
    kinds = [type(event) for event in out]
    assert kinds.count(CompletedEvent) == 1 and kinds[-1] is CompletedEvent
    assert kinds.count(StartedEvent) <= 1
    begun: set[str] = set()
    for event in out:
        if isinstance(event, ActionEvent) and event.action.kind != "warning":
            if event.phase == "completed":
                assert event.action.id in begun
            begun.add(event.action.id)


@given(lawful_runs())
def test_text_is_kept_to_the_character(events: list[Event]) -> None:
    """And every call that a lawful run makes is there, begun and ended."""
    out = list(translate(events))
    assert isinstance(out[-1], CompletedEvent)
    assert out[-1].answer == text_of(events)
    calls = sum(isinstance(event, ToolStarted) for event in events)
    tools = [event for event in out if isinstance(event, ActionEvent) and event.action.kind != "warning"]
    assert sum(event.phase == "started" for event in tools) == calls
    assert sum(event.phase == "completed" for event in tools) == calls
