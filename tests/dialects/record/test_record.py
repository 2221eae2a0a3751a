"""The run record of cakit: built from events or from the CLI's json report, and checked
strictly."""

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
from golden import GOLDEN, check_golden, encode_recording
from random_events import RECORDED, any_events, recorded, valid_runs

REPORTS = Path(__file__).parents[2] / "recordings" / "reports"
_AT: dict[str, Any] = {"at": 1, "seq": 0, "attempt": 1, "turn": 1}
_MODEL = ModelUsage(model="pro", input=100, cached=20, output=10, thinking=2, tool=0, total=112)
_GOOD = Record(
    agent_version="0.61.0",
    runtime_seconds=2.1,
    response="hi",
    models_usage={"pro": ModelTokens(prompt_tokens=100, completion_tokens=10, total_tokens=112)},
    llm_calls=1,
    tool_calls=0,
    exit_code=0,
    command_exit_code=0,
)


def _started(**fields: Any) -> Started:
    defaults = {
        "run_id": "run-1",
        "session_id": "s1",
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
    return Finished(**_AT, **{**defaults, **fields})


def _failure(kind: Any, **fields: Any) -> dict[str, Any]:
    failure = Failure(kind=kind, message="no", retryable=False, hint="h", **fields)
    return {"outcome": "failed", "failure": failure, "text": "", "answer": ""}


def _tool(kind: Any = "read", parent: str | None = None) -> ToolStarted:
    return ToolStarted(**_AT, id="t", name="x", kind=kind, title="x", input={}, parent=parent)


def _retry() -> Notice:
    return Notice(**_AT, level="warning", code="retry", message="again", retry=Retry(1, 503))


def _report(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((REPORTS / f"{name}.json").read_text())
    return report


@pytest.mark.parametrize("name", RECORDED)
def test_the_record_of_a_real_run(name: str) -> None:
    """The record of a recorded run equals its golden file."""
    check_golden(GOLDEN / "record" / f"{name}.json", encode_recording("record", name))


@pytest.mark.parametrize("name", sorted(file.stem for file in REPORTS.glob("*.json")))
def test_events_and_report_give_the_same_record(name: str) -> None:
    """The record from events and the record from the CLI's json report of the same scene are equal
    where both know a value."""
    saved = _report(name)
    reported = from_report(saved["stdout"], saved["stderr"], exit_code=saved["exit_code"])
    events = [decode_event(line) for line in saved.get("events", ())] or recorded(name)
    record = from_events(events)
    # The CLI does not count the answers that its loop recovery discards; the gateway does.
    counts = ("models_usage", "llm_calls") if name != "loop" else ()
    for field in ("response", *counts, "tool_calls"):
        value = getattr(reported, field)
        if value not in (None, {}):
            assert getattr(record, field) == value, field
    assert record.command_exit_code == reported.command_exit_code
    assert record.exit_code == reported.exit_code
    assert record.response == reported.response
    assert check(record, trajectory=False) == check(reported, trajectory=False)
    if saved["exit_code"] == 0:
        assert reported.models_usage and reported.llm_calls and reported.tool_calls is not None


def test_the_object_as_cakit_prints_it() -> None:
    """The record is printed as cakit does: all keys in order, two spaces per level, ASCII only, and
    null for unknown values."""
    written = encode(msgspec.structs.replace(_GOOD, response="é\ud800")).decode()
    assert written == (
        '{\n  "agent": "gemini",\n  "agent_version": "0.61.0",\n'
        '  "command_exit_code": 0,\n  "error": null,\n  "exit_code": 0,\n'
        '  "llm_calls": 1,\n  "models_usage": {\n    "pro": {\n'
        '      "completion_tokens": 10,\n      "prompt_tokens": 100,\n      "total_tokens": 112\n    }\n  },\n'
        '  "output_path": null,\n  "raw_output": null,\n  "response": "\\u00e9\\ud800",\n'
        '  "runtime_seconds": 2.1,\n  "telemetry_log": null,\n  "tool_calls": 0,\n  "total_cost": null,\n'
        '  "trajectory_path": null\n}\n'
    )
    assert decode(encode(_GOOD)) == _GOOD


def test_completion_is_the_candidates_alone() -> None:
    """Completion tokens are the candidates, without thinking. Prompt tokens include cached tokens.
    Thinking and cached tokens have their own fields."""
    value = ModelTokens(
        prompt_tokens=100, completion_tokens=10, total_tokens=112, cached_tokens=20, thinking_tokens=2
    )
    record = from_events([_started(), _finished()])
    assert record.models_usage == {"pro": value}
    assert (record.llm_calls, record.tool_calls) == (1, 0)


def test_the_run_time_is_that_of_the_process() -> None:
    """The run time begins when the CLI is first started, and ends with the run, also with several
    attempts. It is unknown if the CLI was not started, and never negative."""
    starts = [msgspec.structs.replace(_started(), at=at) for at in (1_000, 5_000)]
    finished = msgspec.structs.replace(_finished(), at=9_500)
    assert from_events([*starts, finished]).runtime_seconds == 8.5
    assert from_events([finished]).runtime_seconds is None
    assert from_events([starts[0], _finished()]).runtime_seconds == 0.0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"input": None}, None),
        ({"output": None}, None),
        ({"total": None}, None),
        ({"thinking": None}, {"prompt": 100, "completion": 10, "total": 112, "cached": 20}),
        ({"cached": None}, {"prompt": 100, "completion": 10, "total": 112, "thinking": 2}),
    ],
)
def test_a_model_with_a_missing_count_is_left_out(
    fields: dict[str, Any], expected: dict[str, int] | None
) -> None:
    """A model is left out if its prompt, completion or total count is unknown. Thinking and cached
    counts may be unknown. No count is computed from others."""
    usage = Usage(models=(msgspec.structs.replace(_MODEL, **fields),))
    models = msgspec.to_builtins(from_events([_started(), _finished(usage=usage)]).models_usage)
    assert models == ({"pro": {f"{k}_tokens": v for k, v in expected.items()}} if expected else {})


def test_requests_that_failed_are_counted() -> None:
    """`llm_calls` is the number of requests in the usage, which includes failed ones. Their notices
    are not counted again."""
    events = [_started(), _retry(), _retry(), _finished(usage=Usage(requests=4))]
    assert from_events(events).llm_calls == 4


def test_a_model_with_unknown_tokens_is_left_out() -> None:
    """A model whose totals lack a request is left out. Its requests are still counted."""
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
def test_requests_that_were_not_counted_are_unknown(fields: dict[str, Any]) -> None:
    """If the requests were not counted, `llm_calls` is unknown, never 0."""
    assert from_events([_started(), _finished(**fields)]).llm_calls is None


def test_tools_of_subagents_are_counted() -> None:
    """Tools of subagents are counted. If a subagent ran and the journal is incomplete, the count is
    unknown."""
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
    """The exit code is 0 for a good record, 2 for bad input, 127 without a CLI, otherwise that of
    the CLI, or 1."""
    assert from_events([_started(), _finished(**fields)]).exit_code == code


def test_a_failed_run_says_why() -> None:
    """The error of a failed run is its failure or its reason. The response is only what the model
    answered, and is None if it did not answer."""
    record = from_events([_finished(**_failure("cli_missing"), session_id=None, exit_code=None, usage=None)])
    assert (record.error, record.response, record.tool_calls) == ("cli_missing: no", None, None)
    assert record.agent_version is None
    record = from_events([_started(), _finished(outcome="interrupted", reason="enough", answer="so far")])
    assert (record.error, record.response) == ("enough", "so far")
    assert from_events([_started(), _finished(outcome="timed_out")]).error == "timed_out"
    assert from_events([_started(), _finished(**_failure("auth"))]).response is None
    assert from_events([_started(), _finished()]).error is None


def test_events_without_an_end_are_a_failure() -> None:
    """A run without an end is a failure. Its response is the text after the last tool, and nothing
    else is known."""
    events = [_started(), Text(**_AT, text="a"), _tool(), Text(**_AT, text="b"), Text(**_AT, text="c")]
    error = "the events end before the run has ended"
    assert from_events(events) == Record(agent_version="0.61.0", response="bc", exit_code=1, error=error)
    assert from_events([]) == Record(exit_code=1, error=error)


def test_events_after_the_end_are_ignored() -> None:
    """Events after the end of the run do not change its record."""
    encoder = Encoder()
    assert encoder.feed([_started(), _finished(), _finished(answer="later")]) == b""
    assert decode(encoder.finish()).response == "hi"


def test_both_outputs_are_one_text() -> None:
    """The raw output is stdout and stderr with a separator line between them, or stdout alone."""
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
    """The strict check names each missing or invalid field. It does not apply if the CLI exited
    with an error."""
    record = msgspec.structs.replace(_GOOD, trajectory_path="x", **fields)
    assert [str(problem) for problem in check(record)] == problems


@pytest.mark.parametrize("path", [None, ""])
def test_a_record_without_trajectory_has_a_problem(path: str | None) -> None:
    """The strict check demands a trajectory file, except from a record without files."""
    record = msgspec.structs.replace(_GOOD, trajectory_path=path)
    assert [str(problem) for problem in check(record)] == ["trajectory_path: missing"]
    assert check(record, trajectory=False) == []
    assert check(msgspec.structs.replace(_GOOD, command_exit_code=41)) == []


_DOCUMENTED = {
    "response": "good",
    "stats": {
        "models": {"m": {"tokens": {"prompt": 1, "candidates": 2, "total": 6}, "api": {"totalRequests": 1}}},
        "tools": {"totalCalls": 2},
    },
}


def test_the_documented_fields_of_a_report_are_enough() -> None:
    """A report with exactly the fields that cakit's document names passes the strict check."""
    record = from_report(json.dumps(_DOCUMENTED), exit_code=0)
    assert check(record, trajectory=False) == []
    assert (record.response, record.llm_calls, record.tool_calls, record.exit_code) == ("good", 1, 2, 0)
    tokens = ModelTokens(prompt_tokens=1, completion_tokens=2, total_tokens=6)
    assert record.models_usage == {"m": tokens}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("response", "response"),
        ("stats.models", "models_usage llm_calls"),
        ("stats.models.m.tokens", "models_usage"),
        ("stats.models.m.tokens.prompt", "models_usage"),
        ("stats.models.m.tokens.candidates", "models_usage"),
        ("stats.models.m.tokens.total", "models_usage"),
        ("stats.models.m.api", "llm_calls"),
        ("stats.models.m.api.totalRequests", "llm_calls"),
        ("stats.tools", "tool_calls"),
        ("stats.tools.totalCalls", "tool_calls"),
        ("stats", "models_usage llm_calls tool_calls"),
    ],
)
@pytest.mark.parametrize("value", ["missing", None, [], "text"])
def test_each_missing_or_invalid_field_is_named(path: str, field: str, value: object) -> None:
    """If a documented field is missing or has the wrong type, the check names the field of the
    record that needs it, and no other. The exit code is then 1."""
    if path == "response" and value == "text":
        value = 5
    report = json.loads(json.dumps(_DOCUMENTED))
    *folders, last = path.split(".")
    place = report
    for name in folders:
        place = place[name]
    place[last] = value
    if value == "missing":
        del place[last]
    record = from_report(json.dumps(report), exit_code=0)
    assert [problem.field for problem in check(record, trajectory=False)] == field.split()
    assert record.exit_code == 1


def test_only_the_last_json_of_stdout_counts() -> None:
    """The report is the last JSON object in stdout. The raw output keeps everything."""
    record = from_report(
        f'{{"response": "early"}}\nnoise\n{json.dumps(_DOCUMENTED)}',
        exit_code=0,
        agent_version="1",
        runtime_seconds=2.0,
    )
    assert (record.response, record.llm_calls, record.tool_calls, record.exit_code) == ("good", 1, 2, 0)
    assert record.models_usage["m"].total_tokens == 6
    assert record.raw_output is not None and record.raw_output.startswith('{"response": "early"}')


def test_a_report_on_stderr_gives_only_its_error() -> None:
    """On stderr, only an error counts: a response and usage there are not the CLI's report."""
    record = from_report("", json.dumps(_DOCUMENTED), exit_code=0)
    assert (record.response, record.models_usage, record.llm_calls, record.error) == (None, {}, None, None)
    stderr = json.dumps({"session_id": "s", "error": {"type": "AuthError", "message": "no", "code": 41}})
    record = from_report("", f"a log line\n{stderr}", exit_code=41)
    assert (record.error, record.exit_code, record.command_exit_code) == ("AuthError: no", 41, 41)
    assert from_report('{"error": {}}', exit_code=1).error == "unknown error"


@pytest.mark.parametrize(
    ("stdout", "stderr", "response", "code"),
    [
        ("", "", None, 1),
        ("words\nlast line\n\n", "", None, 1),
        ("[1]", "", None, 1),
        ('{"response": ""}', "", None, 1),
        ('{"response": "x", "error": {"message": "no"}}', "", "x", 1),
        ("", '{"error": {"message": "no"}}', None, 1),
    ],
)
def test_an_incomplete_report_is_a_failure(stdout: str, stderr: str, response: str | None, code: int) -> None:
    """A report without models or requests is a failure, even with exit code 0. Missing values are
    not invented: text that is no report is not a response."""
    record = from_report(stdout, stderr, exit_code=0)
    assert (record.response, record.models_usage, record.llm_calls) == (response, {}, None)
    assert record.exit_code == code


def test_a_report_with_a_count_missing_has_none() -> None:
    """If one model has no request count, the record has no sum of requests."""
    models = {"a": {"api": {"totalRequests": 1}}, "b": {"tokens": {"prompt": 1}}}
    record = from_report(json.dumps({"response": "x", "stats": {"models": models}}), exit_code=0)
    assert (record.llm_calls, record.tool_calls, record.models_usage) == (None, None, {})


@given(any_events)
def test_no_input_raises(events: list[Event]) -> None:
    """Any events give one record that can be decoded."""
    encoder = Encoder()
    assert all(encoder.feed((event,)) == b"" for event in events)
    assert decode(encoder.finish()).agent == "gemini"


@given(valid_runs())
def test_the_answer_is_kept_to_the_character(events: list[Event]) -> None:
    """The response of a valid run is its answer, to the character. Its tool calls are counted, or
    unknown."""
    last = events[-1]
    assert isinstance(last, Finished)
    record = from_events(events)
    assert record.response == (last.answer or None)
    calls = sum(isinstance(event, ToolStarted) and event.attempt == last.attempts for event in events)
    assert record.tool_calls in (calls, None)
