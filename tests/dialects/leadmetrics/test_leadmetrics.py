"""A run as the result of an adapter: one JSON object, golden files, and laws."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.dialects.leadmetrics import AdapterExecutionResult, Encoder, result_of
from geminids.dialects.leadmetrics.result import refused
from geminids.dialects.leadmetrics.transcript import iso_time
from geminids.events.model import (
    Event,
    Finished,
    ModelUsage,
    PermissionAsked,
    Started,
    Text,
    ToolFinished,
    ToolStarted,
    Usage,
)
from geminids.events.stall import Stall
from geminids.outcome import Failure, FailureKind
from golden import GOLDEN, check_golden, spoken
from random_events import RECORDED, any_events, lawful_runs, recorded, text_of


def _said(events: list[Any]) -> dict[str, Any]:
    """What an encoder says of these events, read by a JSON parser that is not ours."""
    encoder = Encoder()
    assert encoder.feed(events) == b""
    said = encoder.finish()
    assert said.endswith(b"}\n") and said.count(b"\n") == 1
    read: dict[str, Any] = json.loads(said)
    return read


def _finished(name: str = "plain") -> Finished:
    last = recorded(name)[-1]
    assert isinstance(last, Finished)
    return last


def _failed(kind: FailureKind, **more: Any) -> AdapterExecutionResult:
    failure = Failure(kind=kind, message="so it is", hint="", **{"retryable": False, **more})
    return result_of(msgspec.structs.replace(_finished(), outcome="failed", failure=failure))


@pytest.mark.parametrize("recording", RECORDED)
def test_what_is_said_of_a_recorded_run(recording: str) -> None:
    """The golden files, to the byte."""
    check_golden(GOLDEN / "adapter" / f"{recording}.json", spoken("adapter", recording))


def test_a_success() -> None:
    """No error, the exit code, the answer, all of the text, tokens as they are billed, and the session."""
    said = _said(recorded("tools"))
    assert (said["success"], said["exitCode"], said["signal"], said["timedOut"]) == (True, 0, None, False)
    assert [said[name] for name in ("error", "errorMessage", "errorCode", "errorMeta")] == [None] * 4
    assert (said["summary"], said["output"]) == ("done.", "Let me see. All done.")
    assert said["usage"] == {"inputTokens": 4000, "outputTokens": 108, "cachedInputTokens": 1200}
    assert said["usageBasis"] == "per_run"
    session = "5f0c0f5e-0000-4000-8000-000000000001"
    assert said["sessionParams"] == {"sessionId": session, "cwd": "/made/up/repo"}
    assert (said["sessionId"], said["sessionDisplayId"], said["clearSession"]) == (session, session, False)
    assert (said["provider"], said["biller"], said["model"]) == ("google", "google", "flash")
    assert (said["costUsd"], said["billingType"]) == (0.002595, None)


def test_a_request_with_unknown_tokens() -> None:
    """The sums lack a request: there is no usage, and the statistics say how many requests are missing."""
    said = _said(recorded("interrupted"))
    assert (said["usage"], said["usageBasis"], said["costUsd"]) == (None, None, None)
    assert said["resultJson"]["stats"]["unknown_requests"] == 1


def test_a_time_out_is_told_in_the_documents_words() -> None:
    """`Process timed out after Ns`, and no success."""
    said = _said(recorded("timed_out"))
    assert (said["success"], said["timedOut"]) == (False, True)
    assert said["error"] == said["errorMessage"] == "Process timed out after 3s"


def _timed_out(**fields: Any) -> Finished:
    return msgspec.structs.replace(_finished("timed_out"), reason="any wording", **fields)


def test_the_time_limit_is_in_the_message() -> None:
    """The limit that the caller gives, not the time until the last process was gone; without one, the time it took."""
    finished = _timed_out(duration_ms=4999)
    assert result_of(finished, timeout=2.5).error_message == "Process timed out after 2.5s"
    assert result_of(finished, timeout=5.0).error_message == "Process timed out after 5s"
    assert result_of(finished).error_message == "Process timed out after 4s"


@pytest.mark.parametrize(
    ("stall", "timeout"),
    [(Stall(cause="idle", since_s=600.0), None), (Stall(cause="idle", since_s=600.0), 1.0), (None, math.inf)],
)
def test_a_silence_has_its_own_reason(stall: Stall | None, timeout: float | None) -> None:
    """A run that was stopped for its silence did not reach its time limit."""
    silent = _timed_out(stall=stall)
    assert result_of(silent, timeout=timeout).error_message == "any wording"


def test_the_turn_limit_clears_the_session() -> None:
    """A session that was resumed there would end there again."""
    said = _said(recorded("max_turns"))
    assert (said["errorCode"], said["clearSession"]) == ("max_turns_exhausted", True)
    assert said["resultJson"]["stopReason"] == "max_turns_exhausted"


def test_a_lost_session_is_cleared_and_a_new_one_is_kept() -> None:
    """`clearSession` where the session is gone; not where the run has begun another in its place."""
    lost = _failed("session_not_found")
    assert (lost.clear_session, lost.session_id) == (True, None)
    fresh = result_of(msgspec.structs.replace(_finished(), clear_session=True))
    assert (fresh.clear_session, fresh.session_id) == (False, _finished().session_id)


def test_a_signal_is_told_as_node_tells_it() -> None:
    """A process that a signal ended has its name, and no exit code."""
    said = _said(recorded("no_result"))
    assert (said["exitCode"], said["signal"]) == (None, "SIGKILL")
    odd = result_of(msgspec.structs.replace(_finished(), exit_code=-200))
    assert (odd.exit_code, odd.signal) == (None, "SIG200")


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
    """Each kind of failure by the names that an orchestrator acts upon."""
    result = _failed(kind)
    assert (result.error_code, result.error_family) == (code, family)
    assert result.error_meta is not None and result.error_meta.kind == kind


def test_an_empty_answer_that_may_be_better_next_time_is_no_refusal() -> None:
    """A refusal is final; what is retryable is none."""
    assert _failed("blocked", retryable=True).error_family is None


def test_when_to_try_again() -> None:
    """The API's own word, counted from the end of the run; nonsense is none."""
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
def test_half_a_bill_is_none(usage: Usage | None) -> None:
    """Tokens that are not known are never 0."""
    result = result_of(msgspec.structs.replace(_finished(), usage=usage))
    assert (result.usage, result.usage_basis) == (None, None)


def test_thinking_and_tool_prompts_are_billed() -> None:
    """Thinking is output, tool prompts are input."""
    used = Usage(input=10, output=2, thinking=5, tool=3, models=(ModelUsage(model="m"),))
    result = result_of(msgspec.structs.replace(_finished(), usage=used))
    assert msgspec.to_builtins(result.usage) == {"inputTokens": 13, "outputTokens": 7}


def test_a_run_whose_end_was_not_told_is_no_success() -> None:
    """Events that stop in the middle: what was said is in the transcript, and the session is kept."""
    said = _said(recorded("plain")[:-1])
    assert (said["success"], said["exitCode"]) == (False, None)
    assert said["error"] == "the events end before the run does"
    assert said["sessionId"] == "5f0c0f5e-0000-4000-8000-000000000001"
    assert _said([])["sessionId"] is None


def test_a_session_that_never_was_is_not_told() -> None:
    """The id of the start is a plan: where the CLI came to its end before it had a session, there is none to resume."""
    *events, finished = recorded("timed_out")
    said = _said([*events, msgspec.structs.replace(finished, session_id=None)])
    assert (said["sessionId"], said["sessionParams"], said["sessionDisplayId"]) == (None, None, None)
    assert said["transcript"][0]["sessionId"] == "5f0c0f5e-0000-4000-8000-000000000001"


def test_a_refused_run_lists_its_problems() -> None:
    """What is wrong, by field."""
    result = refused("cwd: is required", problems=[("cwd", "is required")])
    assert json.loads(result.encode())["errorMeta"] == {
        "outcome": "failed",
        "kind": "bad_option",
        "problems": [["cwd", "is required"]],
    }


def test_the_transcript_tells_subagents_by_their_call() -> None:
    """What a subagent thought and did names the call that it belongs to."""
    entries = _said(recorded("subagent"))["transcript"]
    owned = [entry["kind"] for entry in entries if "parentToolUseId" in entry]
    assert owned == ["thinking", "tool_call", "tool_result", "tool_call", "tool_result"]


def test_an_input_that_came_late_is_in_its_call() -> None:
    """On the warm lane the input is known at the end alone, or by the question; the call has it all the same."""
    entries = _said(recorded("asked"))["transcript"]
    inputs = [entry["input"] for entry in entries if entry["kind"] == "tool_call"]
    assert inputs == [{"file_path": "new.txt", "content": "one\ntwo\n"}, {"command": "echo out; exit 3"}]


def test_an_input_that_nobody_told_is_null() -> None:
    """Neither the call nor a question has it."""
    events = [event for event in recorded("asked") if not isinstance(event, PermissionAsked)]
    inputs = [entry["input"] for entry in _said(events)["transcript"] if entry["kind"] == "tool_call"]
    assert inputs[1] is None


def test_a_session_that_came_late_is_in_the_first_entry() -> None:
    """So is the model of the CLI's own choice; what was known at the start stays."""
    started, announced, *rest = recorded("asked")
    assert isinstance(started, Started) and started.session_id is None
    unnamed = msgspec.structs.replace(started, model=None)
    init = _said([unnamed, announced, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("5f0c0f5e-0000-4000-8000-000000000001", "flash")
    known = msgspec.structs.replace(started, model="pro", session_id="s1")
    init = _said([known, announced, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("s1", "pro")
    init = _said([unnamed, *rest])["transcript"][0]
    assert (init["sessionId"], init["model"]) == ("", "unknown")
    assert _said([announced])["transcript"] == []


def test_an_input_as_deep_as_json_can_be() -> None:
    """It is told, or left out; it never costs the caller the result."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    start = ToolStarted(at=1, seq=1, attempt=1, turn=1, id="x", name="t", kind="other", title="", input=deep)
    (call,) = _said([start])["transcript"]
    assert (call["name"], call["input"]) == ("t", None)


def test_the_result_equals_what_is_stored_and_read_again() -> None:
    """The bytes are those of the struct: nothing is put together by hand that is not in it."""
    for recording in RECORDED:
        encoder = Encoder()
        encoder.feed(recorded(recording))
        result = encoder.result()
        assert json.loads(result.encode()) == json.loads(msgspec.json.encode(result))


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


@given(lawful_runs())
def test_laws_of_a_run(events: list[Any]) -> None:
    """One object; its text is the text to the character; every call has its result, and a result its call before it."""
    said = _said(events)
    assert said["output"] == text_of(events)
    assert (said["error"] is None) == said["success"]
    spoken_of = "".join(entry["text"] for entry in said["transcript"] if entry["kind"] == "assistant")
    assert spoken_of == "".join(event.text for event in events if isinstance(event, Text))
    assert _calls_are_before_results(said["transcript"])
    results = sum(entry["kind"] == "tool_result" for entry in said["transcript"])
    assert results == sum(isinstance(event, ToolFinished) for event in events)


@given(any_events)
def test_nothing_that_is_heard_raises(events: list[Event]) -> None:
    """Any events in any order: one object at the end, and a call before each result."""
    said = _said(events)
    assert _calls_are_before_results(said["transcript"])
    assert sum(entry["kind"] == "init" for entry in said["transcript"]) == sum(
        isinstance(event, Started) for event in events
    )


@given(lawful_runs())
def test_pieces_and_the_whole_are_the_same_bytes(events: list[Any]) -> None:
    """Whether events come one by one or all at once."""
    one_by_one, at_once = Encoder(), Encoder()
    for event in events:
        one_by_one.feed((event,))
    at_once.feed(events)
    assert one_by_one.finish() == at_once.finish()
