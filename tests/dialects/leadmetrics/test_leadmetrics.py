"""Encode runs as results of the Leadmetrics adapter: one JSON object per run."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.dialects.leadmetrics import AdapterExecutionResult, Encoder, result_of
from geminids.dialects.leadmetrics.result import refused
from geminids.dialects.leadmetrics.transcript import User, iso_time
from geminids.events.cost import Cost
from geminids.events.model import (
    EndedProcess,
    Event,
    Finished,
    ModelUsage,
    Notice,
    PermissionAsked,
    SessionStart,
    Started,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
    Usage,
)
from geminids.events.stall import Stall
from geminids.outcome import Failure, FailureKind
from golden import GOLDEN, check_golden, encode_recording
from random_events import RECORDED, any_events, recorded, text_of, valid_runs


def _encode(events: list[Any]) -> dict[str, Any]:
    """Encode the events, and return the result as a standard JSON parser reads it."""
    encoder = Encoder()
    assert encoder.feed(events) == b""
    output = encoder.finish()
    assert output.endswith(b"}\n") and output.count(b"\n") == 1
    result: dict[str, Any] = json.loads(output)
    return result


def _finished(name: str = "plain") -> Finished:
    last = recorded(name)[-1]
    assert isinstance(last, Finished)
    return last


def _failed(kind: FailureKind, **more: Any) -> AdapterExecutionResult:
    failure = Failure(kind=kind, message="so it is", hint="", **{"retryable": False, **more})
    return result_of(msgspec.structs.replace(_finished(), outcome="failed", failure=failure))


@pytest.mark.parametrize("recording", RECORDED)
def test_the_output_for_a_recorded_run(recording: str) -> None:
    """The output for a recorded run equals its golden file."""
    check_golden(GOLDEN / "adapter" / f"{recording}.json", encode_recording("adapter", recording))


def test_a_success() -> None:
    """A successful result has no error. It has the exit code, the answer, the whole text, the
    billed tokens, the session and the cost."""
    output = _encode(recorded("tools"))
    assert (output["success"], output["exitCode"], output["signal"], output["timedOut"]) == (
        True,
        0,
        None,
        False,
    )
    assert [output[name] for name in ("error", "errorMessage", "errorCode", "errorMeta")] == [None] * 4
    assert (output["summary"], output["output"]) == ("done.", "Let me see. All done.")
    assert output["usage"] == {"inputTokens": 4000, "outputTokens": 108, "cachedInputTokens": 1200}
    assert output["usageBasis"] == "per_run"
    session = "5f0c0f5e-0000-4000-8000-000000000001"
    assert output["sessionParams"] == {"sessionId": session, "cwd": "/made/up/repo"}
    assert (output["sessionId"], output["sessionDisplayId"], output["clearSession"]) == (
        session,
        session,
        False,
    )
    assert (output["provider"], output["biller"], output["model"]) == ("google", "google", "flash")
    assert (output["costUsd"], output["billingType"]) == (0.002595, None)


def test_a_request_with_unknown_tokens() -> None:
    """If a request has unknown tokens, the result has no usage, and the statistics count such
    requests."""
    output = _encode(recorded("interrupted"))
    assert (output["usage"], output["usageBasis"], output["costUsd"]) == (None, None, None)
    assert output["resultJson"]["stats"]["unknown_requests"] == 1


def test_the_error_of_a_time_out() -> None:
    """A run that timed out is no success, and its error is `Process timed out after Ns`."""
    output = _encode(recorded("timed_out"))
    assert (output["success"], output["timedOut"]) == (False, True)
    assert output["error"] == output["errorMessage"] == "Process timed out after 3s"


def _timed_out(**fields: Any) -> Finished:
    return msgspec.structs.replace(_finished("timed_out"), reason="any wording", **fields)


def test_the_time_limit_is_in_the_message() -> None:
    """The error of a time-out names the caller's limit, or without one the duration of the run."""
    finished = _timed_out(duration_ms=4999)
    assert result_of(finished, timeout=2.5).error_message == "Process timed out after 2.5s"
    assert result_of(finished, timeout=5.0).error_message == "Process timed out after 5s"
    assert result_of(finished).error_message == "Process timed out after 4s"


@pytest.mark.parametrize(
    ("stall", "timeout"),
    [(Stall(cause="idle", since_s=600.0), None), (Stall(cause="idle", since_s=600.0), 1.0), (None, math.inf)],
)
def test_a_silent_run_keeps_its_own_reason(stall: Stall | None, timeout: float | None) -> None:
    """A run that was stopped because of silence, or that had no finite time limit, keeps its own
    reason as the error."""
    silent = _timed_out(stall=stall)
    assert result_of(silent, timeout=timeout).error_message == "any wording"


def test_the_turn_limit_keeps_the_session() -> None:
    """A run that reached its turn limit keeps the session: the CLI counts the turns of each run."""
    output = _encode(recorded("max_turns"))
    assert (output["errorCode"], output["clearSession"]) == ("max_turns_exhausted", False)
    assert output["sessionParams"]["sessionId"] == output["sessionId"]
    assert output["resultJson"]["stopReason"] == "max_turns_exhausted"


def test_a_lost_session_is_cleared() -> None:
    """`clearSession` is set if the session is lost, also if the run has started a new one, which is
    then in the result."""
    lost = _failed("session_not_found")
    assert (lost.clear_session, lost.session_id) == (True, None)
    fresh = result_of(msgspec.structs.replace(_finished(), clear_session=True))
    assert (fresh.clear_session, fresh.session_id) == (True, _finished().session_id)
    assert fresh.session_params is not None and fresh.session_params.session_id == fresh.session_id


def test_ended_processes_are_listed() -> None:
    """The result lists each process that had to be ended, with its command and the last signal."""
    ended = (EndedProcess(pid=7, command="sleep 300", signal="KILL"),)
    result = result_of(msgspec.structs.replace(_finished(), ended=ended))
    assert json.loads(result.encode())["ended"] == [{"pid": 7, "command": "sleep 300", "signal": "KILL"}]
    assert json.loads(result_of(_finished()).encode())["ended"] == []


def test_a_run_whose_requests_were_all_refused_has_no_usage() -> None:
    """If the API refused every request, as with a bad key, usage and counts are left out, not 0."""
    output = _encode(recorded("bad_key"))
    assert (output["usage"], output["usageBasis"]) == (None, None)
    assert set(output["resultJson"]["stats"]) == {"duration_ms"}


def test_the_basis_of_the_cost() -> None:
    """The result reports how exact the cost is, and how the run signed in."""
    cost = Cost(usd=Decimal("0.5"), basis="estimate", auth_mode="key")
    result = result_of(msgspec.structs.replace(_finished(), cost=cost))
    assert (result.cost_usd, result.cost_basis, result.auth_mode) == (0.5, "estimate", "key")
    result = result_of(msgspec.structs.replace(_finished(), cost=None))
    assert (result.cost_usd, result.cost_basis, result.auth_mode) == (None, None, None)


def test_a_signal_is_reported_as_node_does() -> None:
    """A process that a signal ended has the name of the signal and no exit code, as in Node."""
    output = _encode(recorded("no_result"))
    assert (output["exitCode"], output["signal"]) == (None, "SIGKILL")
    unknown_signal = result_of(msgspec.structs.replace(_finished(), exit_code=-200))
    assert (unknown_signal.exit_code, unknown_signal.signal) == (None, "SIG200")


@pytest.mark.parametrize(
    ("kind", "code", "family"),
    [
        ("auth", "gemini_auth_required", None),
        ("tier_retired", "gemini_auth_required", None),
        ("network", "gemini_network_unavailable", "transient_upstream"),
        ("server", None, "transient_upstream"),
        ("quota_minute", None, "provider_quota"),
        ("quota_day", None, "provider_quota"),
        ("blocked", None, "model_refusal"),
        ("loop", None, None),
    ],
)
def test_codes_and_families(kind: FailureKind, code: str | None, family: str | None) -> None:
    """Each kind of failure has the error code and the error family that an orchestrator acts
    upon."""
    result = _failed(kind)
    assert (result.error_code, result.error_family) == (code, family)
    assert result.error_meta is not None and result.error_meta.kind == kind


def test_a_retryable_empty_answer_is_no_refusal() -> None:
    """A blocked answer that is retryable has no error family, because a refusal of the model is
    final."""
    assert _failed("blocked", retryable=True).error_family is None


def test_when_to_try_again() -> None:
    """`retry_not_before` is the end of the run plus the API's delay. A negative delay is
    ignored."""
    end = _finished().at
    assert _failed("quota_minute", retry_after=30.0).retry_not_before == iso_time(end + 30_000)
    assert _failed("quota_minute", retry_after=-1.0).retry_not_before is None
    assert _failed("quota_minute").retry_not_before is None


@pytest.mark.parametrize(
    "usage",
    [
        None,
        Usage(),
        Usage(input=3),
        Usage(output=3),
        Usage(input=3, output=3, thinking=0),
        Usage(input=3, output=3, tool=0),
    ],
)
def test_incomplete_usage_is_left_out(usage: Usage | None) -> None:
    """If a billed count is unknown, the result has no usage. An unknown count is never reported as
    0."""
    result = result_of(msgspec.structs.replace(_finished(), usage=usage))
    assert (result.usage, result.usage_basis) == (None, None)


def test_thinking_and_tool_prompts_are_billed() -> None:
    """Thinking counts as output tokens, and tool prompts count as input tokens."""
    used = Usage(input=10, output=2, thinking=5, tool=3, models=(ModelUsage(model="m"),))
    result = result_of(msgspec.structs.replace(_finished(), usage=used))
    assert msgspec.to_builtins(result.usage) == {"inputTokens": 13, "outputTokens": 7}


def test_a_run_without_an_end_is_no_success() -> None:
    """If the events stop before the end of the run, the result is an error and keeps the
    session."""
    output = _encode(recorded("plain")[:-1])
    assert (output["success"], output["exitCode"]) == (False, None)
    assert output["error"] == "the events end before the run has ended"
    assert output["sessionId"] == "5f0c0f5e-0000-4000-8000-000000000001"
    assert _encode([])["sessionId"] is None


def test_a_session_that_never_existed_is_not_reported() -> None:
    """If the run ended before the CLI had a session, the result has no session, although the start
    has a planned id."""
    *events, finished = recorded("timed_out")
    output = _encode([*events, msgspec.structs.replace(finished, session_id=None)])
    assert (output["sessionId"], output["sessionParams"], output["sessionDisplayId"]) == (None, None, None)
    assert output["transcript"][0]["sessionId"] == "5f0c0f5e-0000-4000-8000-000000000001"


def test_a_refused_run_lists_its_problems() -> None:
    """The result of a refused run lists each problem with its field."""
    result = refused("cwd: is required", problems=[("cwd", "is required")])
    assert json.loads(result.encode())["errorMeta"] == {
        "outcome": "failed",
        "kind": "bad_option",
        "problems": [["cwd", "is required"]],
    }


def test_the_transcript_names_the_call_of_a_subagent() -> None:
    """Thoughts and tools of a subagent name its call in the transcript."""
    entries = _encode(recorded("subagent"))["transcript"]
    owned = [entry["kind"] for entry in entries if "parentToolUseId" in entry]
    assert owned == ["thinking", "tool_call", "tool_result", "tool_call", "tool_result"]


def test_an_input_that_arrives_late_is_in_its_call() -> None:
    """In a warm run the input of a call arrives with its end or its permission request. The entry
    of the call has it."""
    entries = _encode(recorded("asked"))["transcript"]
    inputs = [entry["input"] for entry in entries if entry["kind"] == "tool_call"]
    assert inputs == [{"file_path": "new.txt", "content": "one\ntwo\n"}, {"command": "echo out; exit 3"}]


def test_an_unknown_input_is_null() -> None:
    """The input of a call is null if neither the call nor a permission request has it."""
    events = [event for event in recorded("asked") if not isinstance(event, PermissionAsked)]
    inputs = [entry["input"] for entry in _encode(events)["transcript"] if entry["kind"] == "tool_call"]
    assert inputs[1] is None


def test_a_session_that_arrives_late_is_in_the_first_entry() -> None:
    """The first entry has a session id and a model that the CLI reports later. Values that are
    known at the start stay."""
    started, announced, *rest = recorded("asked")
    assert isinstance(started, Started) and started.session_id is None
    unnamed = msgspec.structs.replace(started, model=None)
    init = _encode([unnamed, announced, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("5f0c0f5e-0000-4000-8000-000000000001", "flash")
    known = msgspec.structs.replace(started, model="pro", session_id="s1")
    init = _encode([known, announced, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("s1", "pro")
    init = _encode([unnamed, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("", "unknown")
    assert _encode([announced])["transcript"] == []


def test_the_prompt_that_was_sent_replaces_the_given_one() -> None:
    """`set_prompt` replaces the prompt of its attempt, and adds none to an attempt without a prompt."""
    encoder = Encoder()
    encoder.feed(recorded("plain"))
    users = [entry for entry in encoder.transcript.entries() if isinstance(entry, User)]
    assert len(users) == 1
    encoder.transcript.set_prompt("sent", attempt=1)
    encoder.transcript.set_prompt("elsewhere", attempt=2)
    users = [entry for entry in encoder.transcript.entries() if isinstance(entry, User)]
    assert [user.text for user in users] == ["sent"]


def test_without_a_configured_model_the_cli_names_it() -> None:
    """The model of a result is the configured one, else the one that the CLI reports, else unknown."""
    started, *rest = [event for event in recorded("plain") if not isinstance(event, Notice)]
    assert isinstance(started, Started)
    unnamed = msgspec.structs.replace(started, model=None)
    session = Notice(
        at=started.at,
        seq=1,
        attempt=1,
        turn=0,
        level="info",
        code="session",
        message="",
        session=SessionStart(session_id="s", model="auto"),
    )
    assert _encode([started, session, *rest])["model"] == started.model
    assert _encode([unnamed, session, *rest])["model"] == "auto"
    assert _encode([unnamed, *rest])["model"] is None
    assert _encode(rest)["model"] is None


def test_a_deeply_nested_input() -> None:
    """A tool input that is nested too deeply becomes null, and the result is still encoded."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    start = ToolStarted(at=1, seq=1, attempt=1, turn=1, id="x", name="t", kind="other", title="", input=deep)
    (call,) = _encode([start])["transcript"]
    assert (call["name"], call["input"]) == ("t", None)


def test_the_bytes_are_those_of_the_struct() -> None:
    """The encoded result equals the JSON encoding of its struct."""
    for recording in RECORDED:
        encoder = Encoder()
        encoder.feed(recorded(recording))
        result = encoder.result()
        assert json.loads(result.encode()) == json.loads(msgspec.json.encode(result))


def _event(event: Any, at: int, turn: int, **fields: Any) -> Any:
    return event(at=at, seq=0, attempt=1, turn=turn, **fields)


def _tool(at: int, turn: int, name: str, parent: str | None = None) -> list[Any]:
    """Return a call and its result, one millisecond later."""
    fields: dict[str, Any] = {"id": name, "name": name, "input": {}, "parent": parent}
    return [
        _event(ToolStarted, at, turn, kind="other", title=name, **fields),
        _event(ToolFinished, at + 1, turn, status="ok", output="", **fields),
    ]


def _kinds(events: list[Any]) -> list[tuple[str, str]]:
    """Return the kind of each entry, with its text or tool."""
    return [
        (entry["kind"], entry.get("text") or entry.get("name") or entry.get("toolName"))
        for entry in _encode(events)["transcript"]
    ]


def test_the_order_in_a_turn() -> None:
    """A turn has its thoughts first, then its tool calls with their results, then its text, although
    the CLI reports text first and thoughts last."""
    events = [
        _event(Text, 10, 1, text="look"),
        *_tool(20, 1, "read_file"),
        _event(Text, 40, 2, text="do"),
        _event(Thought, 50, 1, subject=None, text="first thought"),
        _event(Text, 60, 2, text="ne"),
        _event(Thought, 70, 2, subject=None, text="second thought"),
    ]
    assert _kinds(events) == [
        ("thinking", "first thought"),
        ("tool_call", "read_file"),
        ("tool_result", "read_file"),
        ("assistant", "look"),
        ("thinking", "second thought"),
        ("assistant", "done"),
    ]


def test_a_warning_stays_where_it_was_reported() -> None:
    """A warning stays after everything that was reported before it."""
    events = [
        *_tool(20, 1, "read_file"),
        _event(Notice, 30, 1, level="warning", code="warning", message="careful"),
        _event(Thought, 40, 1, subject=None, text="late"),
        _event(Text, 50, 1, text="done"),
        _event(Notice, 60, 1, level="warning", code="warning", message="at the end"),
    ]
    assert [text for _, text in _kinds(events)] == [
        "late",
        "read_file",
        "read_file",
        "careful",
        "done",
        "at the end",
    ]


def test_the_tools_of_a_subagent_come_before_its_result() -> None:
    """The calls of a subagent are between its call and its result, also those of a subagent of the
    subagent, and also if they were reported later."""
    outer, inner = _tool(10, 1, "outer"), _tool(12, 1, "inner", parent="outer")
    events = [*outer, *inner, *_tool(11, 1, "leaf", parent="inner")]
    assert [(kind, name) for kind, name in _kinds(events)] == [
        ("tool_call", "outer"),
        ("tool_call", "inner"),
        ("tool_call", "leaf"),
        ("tool_result", "leaf"),
        ("tool_result", "inner"),
        ("tool_result", "outer"),
    ]


def _calls_are_before_results(transcript: list[dict[str, Any]]) -> bool:
    open_calls: list[str] = []
    for entry in transcript:
        if entry["kind"] == "tool_call":
            open_calls.append(entry["toolUseId"])
        elif entry["kind"] == "tool_result":
            if entry["toolUseId"] not in open_calls:
                return False
            open_calls.remove(entry["toolUseId"])
    return True


@given(valid_runs())
def test_rules_for_valid_runs(events: list[Any]) -> None:
    """For a valid run, the output is the text to the character, only a failure has an error, and
    each tool has a result after its call."""
    output = _encode(events)
    assert output["output"] == text_of(events)
    assert (output["error"] is None) == output["success"]
    text = "".join(entry["text"] for entry in output["transcript"] if entry["kind"] == "assistant")
    assert text == "".join(event.text for event in events if isinstance(event, Text))
    assert _calls_are_before_results(output["transcript"])
    results = sum(entry["kind"] == "tool_result" for entry in output["transcript"])
    assert results == sum(isinstance(event, ToolFinished) for event in events)


@given(any_events)
def test_no_input_raises(events: list[Event]) -> None:
    """Any events in any order give one JSON object, in which each call comes before its result, and
    times never decrease."""
    output = _encode(events)
    assert _calls_are_before_results(output["transcript"])
    times = [entry["ts"] for entry in output["transcript"]]
    assert times == sorted(times)
    assert sum(entry["kind"] == "init" for entry in output["transcript"]) == sum(
        isinstance(event, Started) for event in events
    )


@given(valid_runs())
def test_batches_do_not_matter(events: list[Any]) -> None:
    """Events give the same bytes one by one and all at once."""
    one_by_one, at_once = Encoder(), Encoder()
    for event in events:
        one_by_one.feed((event,))
    at_once.feed(events)
    assert one_by_one.finish() == at_once.finish()
