"""The run record: from events and from the CLI's json report alike, and what a strict reader finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids import decode_event
from geminids.dialects.record import (
    Encoder,
    ModelTokens,
    Record,
    check,
    decode,
    encode,
    from_events,
    from_report,
    raw_output,
)
from geminids.events.model import (
    Event,
    Finished,
    ModelUsage,
    Notice,
    Retry,
    Started,
    Text,
    ToolStarted,
    Usage,
)
from geminids.outcome import Failure
from golden import GOLDEN, check_golden, spoken
from random_events import RECORDED, any_events, lawful_runs, recorded

REPORTS = Path(__file__).parents[2] / "recordings" / "reports"
_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_MODEL = ModelUsage(model="pro", input=100, cached=20, output=10, thinking=2, tool=0, total=112)
_GOOD = Record(
    agent_version="0.61.0",
    runtime_seconds=2.1,
    response="hi",
    models_usage={"pro": ModelTokens(prompt_tokens=100, completion_tokens=12, total_tokens=112)},
    llm_calls=1,
    tool_calls=0,
    cakit_exit_code=0,
    command_exit_code=0,
)


def _started(**fields: Any) -> Started:
    given = {
        "run_id": "run-1",
        "session_id": "s1",
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
        "text": "hi",
        "answer": "hi",
        "session_id": "s1",
        "clear_session": False,
        "usage": Usage(
            input=100, cached=20, output=10, thinking=2, tool=0, total=112, requests=1, models=(_MODEL,)
        ),
        "attempts": 1,
        "exit_code": 0,
        "duration_ms": 2100,
        "ended": (),
        "complete": True,
    }
    return Finished(**_AT, **{**given, **fields})


def _failure(kind: Any, **fields: Any) -> dict[str, Any]:
    failure = Failure(kind=kind, message="no", retryable=False, hint="h", **fields)
    return {"outcome": "failed", "failure": failure, "text": "", "answer": ""}


def _tool(kind: Any = "read", parent: str | None = None) -> ToolStarted:
    return ToolStarted(**_AT, id="t", name="x", kind=kind, title="x", input={}, parent=parent)


def _retry() -> Notice:
    return Notice(**_AT, level="warning", code="retry", message="again", retry=Retry(1, 503))


def _report(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((REPORTS / f"{name}.json").read_text())
    return kept


@pytest.mark.parametrize("name", RECORDED)
def test_the_record_of_a_real_run(name: str) -> None:
    """The golden set: recordings of the real CLI, byte for byte."""
    check_golden(GOLDEN / "record" / f"{name}.json", spoken("record", name))


@pytest.mark.parametrize("name", sorted(file.stem for file in REPORTS.glob("*.json")))
def test_events_and_report_tell_the_same(name: str) -> None:
    """The same scene of the real CLI, once as events, once as json: equal where both know a value."""
    kept = _report(name)
    reported = from_report(kept["stdout"], kept["stderr"], exit_code=kept["exit_code"])
    events = [decode_event(line) for line in kept.get("events", ())] or recorded(name)
    heard = from_events(events)
    # The CLI does not count the answers that its loop recovery discards; the gateway does.
    counts = ("models_usage", "llm_calls") if name != "loop" else ()
    for field in ("response", *counts, "tool_calls"):
        told = getattr(reported, field)
        if told not in (None, {}):
            assert getattr(heard, field) == told, field
    assert heard.command_exit_code == reported.command_exit_code
    assert heard.cakit_exit_code == reported.cakit_exit_code
    assert heard.response == reported.response
    assert check(heard) == check(reported)
    if kept["exit_code"] == 0:
        assert reported.models_usage and reported.llm_calls and reported.tool_calls is not None


def test_the_object_as_cakit_prints_it() -> None:
    """All keys, in order, two blanks a level, ASCII only; what is not known is null."""
    written = encode(msgspec.structs.replace(_GOOD, response="é\ud800")).decode()
    assert written == (
        '{\n  "agent": "gemini",\n  "agent_version": "0.61.0",\n  "cakit_exit_code": 0,\n'
        '  "command_exit_code": 0,\n  "llm_calls": 1,\n  "models_usage": {\n    "pro": {\n'
        '      "completion_tokens": 12,\n      "prompt_tokens": 100,\n      "total_tokens": 112\n    }\n  },\n'
        '  "output_path": null,\n  "raw_output": null,\n  "response": "\\u00e9\\ud800",\n'
        '  "runtime_seconds": 2.1,\n  "telemetry_log": null,\n  "tool_calls": 0,\n  "total_cost": null,\n'
        '  "trajectory_path": null\n}\n'
    )
    assert decode(encode(_GOOD)) == _GOOD


def test_thinking_is_completion_and_told_beside_it() -> None:
    """So are cached tokens, which are part of the prompt."""
    told = ModelTokens(
        prompt_tokens=100, completion_tokens=12, total_tokens=112, cached_tokens=20, thinking_tokens=2
    )
    record = from_events([_started(), _finished()])
    assert record.models_usage == {"pro": told}
    assert (record.llm_calls, record.tool_calls, record.runtime_seconds) == (1, 0, 2.1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"thinking": None}, {}),
        ({"input": None}, {}),
        ({"output": None}, {}),
        ({"total": None, "cached": None}, {"prompt": 100, "completion": 12, "total": 112}),
        ({"total": 120}, {"prompt": 100, "completion": 12, "total": 120, "cached": 20}),
    ],
)
def test_a_model_with_a_hole_is_left_out(fields: dict[str, Any], expected: dict[str, int]) -> None:
    """Only the total can be made of the others."""
    usage = Usage(models=(msgspec.structs.replace(_MODEL, **fields),))
    models = msgspec.to_builtins(from_events([_started(), _finished(usage=usage)]).models_usage)
    assert models == (
        {"pro": {f"{k}_tokens": v for k, v in expected.items()} | {"thinking_tokens": 2}} if expected else {}
    )


def test_requests_that_failed_are_counted() -> None:
    """As the CLI does: the usage counts them, and their notices are not counted again."""
    events = [_started(), _retry(), _retry(), _finished(usage=Usage(requests=4))]
    assert from_events(events).llm_calls == 4


def test_a_model_with_unknown_tokens_is_left_out() -> None:
    """Its sums lack a request."""
    usage = Usage(
        requests=3, unknown=1, models=(_MODEL, msgspec.structs.replace(_MODEL, model="x", unknown=1))
    )
    record = from_events([_started(), _finished(usage=usage)])
    assert (list(record.models_usage), record.llm_calls) == (["pro"], 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": None},
        {"usage": Usage()},
    ],
)
def test_requests_that_nobody_counted_are_not_known(fields: dict[str, Any]) -> None:
    """Never 0."""
    assert from_events([_started(), _finished(**fields)]).llm_calls is None


def test_tools_of_subagents_are_counted() -> None:
    """Where the journal told all of them; else nobody knows how many there were."""
    events = [_started(), _tool("agent"), _tool(parent="t"), _tool()]
    assert from_events([*events, _finished()]).tool_calls == 3
    assert from_events([*events, _finished(complete=False)]).tool_calls is None
    assert from_events([_started(), _tool(), _finished(complete=False)]).tool_calls == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"answer": " "}, 1),
        ({"usage": None}, 1),
        (_failure("bad_prompt") | {"exit_code": None}, 2),
        (_failure("bad_option") | {"exit_code": None}, 2),
        (_failure("cli_missing") | {"exit_code": None}, 127),
        (_failure("auth") | {"exit_code": 41}, 41),
        (_failure("blocked"), 1),
        ({"outcome": "timed_out", "exit_code": 0}, 1),
        ({"outcome": "max_turns", "exit_code": 53}, 53),
    ],
)
def test_exit_codes(fields: dict[str, Any], code: int) -> None:
    """0 for a good record, 2 bad input, 127 no CLI, the CLI's own, else 1."""
    assert from_events([_started(), _finished(**fields)]).cakit_exit_code == code


def test_a_run_that_never_began_says_why() -> None:
    """In the response, as cakit does for errors of the setup."""
    record = from_events([_finished(**_failure("cli_missing"), session_id=None, exit_code=None, usage=None)])
    assert (record.response, record.tool_calls, record.agent_version) == ("no", None, None)
    record = from_events([_finished(outcome="interrupted", reason="enough")])
    assert record.response == "enough"
    assert from_events([_started(), _finished(**_failure("auth"))]).response is None


def test_events_without_an_end_are_a_failure() -> None:
    """What was said since the last tool is the response; nothing else is known."""
    events = [_started(), Text(**_AT, text="a"), _tool(), Text(**_AT, text="b"), Text(**_AT, text="c")]
    assert from_events(events) == Record(agent_version="0.61.0", response="bc", cakit_exit_code=1)
    assert from_events([]) == Record(cakit_exit_code=1)


def test_nothing_is_heard_after_the_end() -> None:
    """One record a run, told when the events are over."""
    encoder = Encoder()
    assert encoder.feed([_started(), _finished(), _finished(answer="later")]) == b""
    assert decode(encoder.finish()).response == "hi"


def test_both_outputs_are_one_text() -> None:
    """With a line between them; alone where there is one."""
    assert raw_output("{}", "w") == "{}\n\n----- STDERR -----\nw"
    assert raw_output("{}") == "{}"


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({}, []),
        ({"response": None}, ["response: missing"]),
        ({"response": " \n"}, ["response: blank"]),
        ({"models_usage": {}}, ["models_usage: no model with known tokens"]),
        ({"llm_calls": None}, ["llm_calls: not known"]),
        ({"llm_calls": 0}, ["llm_calls: 0, must be at least 1"]),
        ({"tool_calls": None}, ["tool_calls: not known"]),
        ({"tool_calls": -1}, ["tool_calls: -1, must be at least 0"]),
        ({"llm_calls": None, "command_exit_code": None}, ["llm_calls: not known"]),
        ({"llm_calls": None, "command_exit_code": 41}, []),
    ],
)
def test_the_strict_check_names_the_field(fields: dict[str, Any], problems: list[str]) -> None:
    """Where the CLI ended with 0, or had no exit of its own; a bad exit speaks for itself."""
    assert [str(problem) for problem in check(msgspec.structs.replace(_GOOD, **fields))] == problems


def test_a_trajectory_can_be_demanded() -> None:
    """As cakit's page does, and its code does not."""
    assert [problem.field for problem in check(_GOOD, trajectory=True)] == ["trajectory_path"]
    assert check(msgspec.structs.replace(_GOOD, trajectory_path="x"), trajectory=True) == []


def test_only_the_last_json_of_stdout_counts() -> None:
    """Names are exact, and no model is made up from elsewhere."""
    stats = {
        "models": {
            "m": {"tokens": {"prompt": 1, "candidates": 2, "thoughts": 3}, "api": {"totalRequests": 1}}
        }
    }
    last = json.dumps({"response": "good", "stats": {**stats, "tools": {"totalCalls": 2}}})
    record = from_report(
        f'{{"response": "early"}}\nnoise\n{last}', exit_code=0, agent_version="1", runtime_seconds=2.0
    )
    assert (record.response, record.llm_calls, record.tool_calls, record.cakit_exit_code) == ("good", 1, 2, 0)
    assert record.models_usage["m"].total_tokens == 6
    assert record.raw_output is not None and record.raw_output.startswith('{"response": "early"}')


@pytest.mark.parametrize(
    ("stdout", "stderr", "response", "code"),
    [
        ("", "", None, 1),
        ("words\nlast line\n\n", "", "last line", 1),
        ('{"response": ""}', "", None, 1),
        ('{"response": "x", "error": {"message": "no"}}', "", "x", 1),
        ("", '{"error": {"message": "no"}}', None, 1),
    ],
)
def test_a_report_with_holes_is_a_failure(stdout: str, stderr: str, response: str | None, code: int) -> None:
    """Exit 0 is not enough: what is missing is not made up."""
    record = from_report(stdout, stderr, exit_code=0)
    assert (record.response, record.models_usage, record.llm_calls) == (response, {}, None)
    assert record.cakit_exit_code == code


def test_a_report_with_a_count_missing_has_none() -> None:
    """A sum with a hole is no sum."""
    models = {"a": {"api": {"totalRequests": 1}}, "b": {"tokens": {"prompt": 1}}}
    record = from_report(json.dumps({"response": "x", "stats": {"models": models}}), exit_code=0)
    assert (record.llm_calls, record.tool_calls, record.models_usage) == (None, None, {})


@given(any_events)
def test_nothing_that_is_heard_raises(events: list[Event]) -> None:
    """Whatever comes, there is one record that can be read."""
    encoder = Encoder()
    assert all(encoder.feed((event,)) == b"" for event in events)
    assert decode(encoder.finish()).agent == "gemini"


@given(lawful_runs())
def test_the_answer_is_kept_to_the_character(events: list[Event]) -> None:
    """And every call of the last attempt is counted, where it can be."""
    last = events[-1]
    assert isinstance(last, Finished)
    record = from_events(events)
    assert record.response == (last.answer or None)
    calls = sum(isinstance(event, ToolStarted) and event.attempt == last.attempts for event in events)
    assert record.tool_calls in (calls, None)
