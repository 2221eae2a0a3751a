"""Encode runs as ATIF documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atif_check import check
from geminids.dialects.atif.encoder import Encoder
from geminids.events.model import (
    AnyEvent,
    Event,
    Finished,
    PermissionAsked,
    PermissionDecided,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Usage,
)
from golden import GOLDEN, check_golden, encode_recording
from random_events import RECORDED, any_events, recorded, text_of, valid_runs

_COMMON: dict[str, Any] = {"at": 1_794_800_000_000, "seq": 0, "attempt": 1, "turn": 1}


def _document(events: Sequence[Event]) -> Any:
    encoder = Encoder()
    assert encoder.feed(events) == b""
    return json.loads(encoder.finish())


def _started(**fields: Any) -> Started:
    defaults = {
        "session_id": "s1",
        "model": "flash",
        "cwd": "/x",
        "cli_version": "0.61.0",
        "prompt": "Do it.",
    }
    return Started(**{**_COMMON, "run_id": "run-1", "transport": "headless", "pid": 1, **defaults, **fields})


def _tool(**fields: Any) -> dict[str, Any]:
    return {**_COMMON, "id": "t1", "name": "read_file", "input": {"file_path": "a"}, **fields}


def _tool_started(**fields: Any) -> ToolStarted:
    return ToolStarted(**_tool(kind="read", title="Read a", **fields))


def _tokens(role: Any = "main", **fields: Any) -> TokensUsed:
    known: dict[str, Any] = dict.fromkeys(("input", "cached", "output", "thinking", "tool"))
    return TokensUsed(**_COMMON, model="gemini-3.8-flash", role=role, **{**known, **fields})


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """The output for a recorded run is a valid document and equals its golden file."""
    output = encode_recording("atif", name)
    check(json.loads(output))
    check_golden(GOLDEN / "atif" / f"{name}.json", output)


@given(st.one_of(any_events, valid_runs()))
def test_any_events_give_a_valid_document(events: list[AnyEvent]) -> None:
    """Any events give a document that follows the rules of the format."""
    check(_document(events))


@given(valid_runs())
def test_text_is_preserved(events: list[AnyEvent]) -> None:
    """The agent's messages join to the text of the last attempt."""
    steps = _document(events)["steps"]
    text = "".join(step["message"] for step in steps if step["source"] == "agent")
    assert text == text_of(events)


def test_a_run_of_tools() -> None:
    """Each turn is one step. Results are in the step of their calls, with the exit code of a
    shell."""
    document = _document(recorded("tools"))
    assert [step["source"] for step in document["steps"]] == ["user", *["agent"] * 4]
    user, first, second, *_, last = document["steps"]
    assert user["message"] == "Do the tools."
    assert first["reasoning_content"] == "Look: I read."
    assert [call["function_name"] for call in first["tool_calls"]] == ["read_file", "write_file"]
    assert first["observation"]["results"][0]["content"] == "hello\n"
    shell = second["observation"]["results"][1]
    assert shell["content"] == "out"
    assert shell["extra"]["exit_code"] == 3
    assert last["message"] == "done."
    assert document["final_metrics"] == {
        "total_prompt_tokens": 4000,
        "total_completion_tokens": 108,
        "total_cached_tokens": 1200,
        "total_cost_usd": 0.002595,
        "total_steps": 5,
    }
    assert document["extra"]["finish_reason"] == "STOP"


def test_a_subagent_has_its_own_trajectory() -> None:
    """A subagent has its own trajectory, which begins with its prompt. Its call refers to that
    trajectory."""
    document = _document(recorded("subagent"))
    (inner,) = document["subagent_trajectories"]
    (result,) = document["steps"][1]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": inner["trajectory_id"]}]
    assert inner["agent"]["name"] == "generalist"
    assert [step["source"] for step in inner["steps"]] == ["user", "agent", "agent"]
    assert inner["steps"][0]["message"] == "Do the subtask."
    assert inner["steps"][1]["reasoning_content"] == "Sub: I read."
    assert document["final_metrics"]["total_prompt_tokens"] == 4000


def test_the_reason_for_the_end_is_the_last_step() -> None:
    """A run that did not succeed has its reason in a last step of the system, and its outcome in
    `extra`."""
    document = _document(recorded("max_turns"))
    last = document["steps"][-1]
    assert last["source"] == "system"
    assert document["extra"]["outcome"] == "max_turns"
    finished = recorded("max_turns")[-1]
    assert isinstance(finished, Finished)
    assert last["message"] == finished.reason


def test_a_run_that_never_began() -> None:
    """Without events the document is valid: it has one empty step and no outcome."""
    document = _document([])
    check(document)
    assert [step["message"] for step in document["steps"]] == [""]
    assert document["extra"] == {"complete": False}
    assert "session_id" not in document


def test_the_last_attempt_counts() -> None:
    """The document has the text and the session of the last attempt, not of an abandoned one."""
    lost = Text(**_COMMON, text="lost")
    kept = Text(**_COMMON, text="kept")
    document = _document([_started(), lost, _started(session_id="s2"), kept])
    assert [step["message"] for step in document["steps"]] == ["Do it.", "kept"]
    assert document["session_id"] == "s2"
    assert document["extra"]["attempts"] == 2


def test_an_input_that_arrives_late() -> None:
    """In a warm run, a call's input can arrive with its end. The step also has the permission
    decision."""
    decided = PermissionDecided(
        **_COMMON, id="t1", tool="read_file", decision="deny", by="person", reason="no"
    )
    end = ToolFinished(**_tool(status="denied", error="not allowed"))
    step = _document([_tool_started(input=None), decided, end])["steps"][0]
    (call,) = step["tool_calls"]
    assert call["arguments"] == {"file_path": "a"}
    assert call["extra"] == {"permission": {"decision": "deny", "by": "person", "reason": "no"}}
    assert step["observation"]["results"] == [
        {"source_call_id": "t1", "content": "not allowed", "extra": {"status": "denied"}}
    ]


def test_a_decision_about_no_call() -> None:
    """A permission decision about an unknown call changes nothing."""
    decided = PermissionDecided(**_COMMON, id="t9", tool="x", decision="deny", by="rule")
    assert _document([_started(), decided]) == _document([_started()])


def test_calls_and_results_without_a_counterpart() -> None:
    """A call without an end has no result. An end without a start adds the call."""
    step = _document([_tool_started(id="t0"), ToolFinished(**_tool(status="ok", output="x"))])["steps"][0]
    assert [call["tool_call_id"] for call in step["tool_calls"]] == ["t0", "t1"]
    assert [one["source_call_id"] for one in step["observation"]["results"]] == ["t1"]


def test_a_subagent_whose_call_does_not_end() -> None:
    """A subagent's trajectory is included, also if its call has no end or no start. A known call
    refers to it."""
    inner = Thought(**_COMMON, subject=None, text="hm", parent="t1")
    other = Thought(**_COMMON, subject=None, text="hm", parent="t7")
    document = _document([_tool_started(name="invoke_agent"), inner, other])
    check(document)
    (result,) = document["steps"][0]["observation"]["results"]
    assert result == {"source_call_id": "t1", "subagent_trajectory_ref": [{"trajectory_id": "t1"}]}
    assert [one["trajectory_id"] for one in document["subagent_trajectories"]] == ["t1", "t7"]
    assert document["subagent_trajectories"][1]["agent"]["name"] == "subagent"


def test_totals_with_unknown_parts() -> None:
    """A total with an unknown part is left out. Its known parts are in `extra`."""
    document = _document([_tokens(input=5, tool=2, output=3), _tokens(role="router", input=1)])
    (step,) = document["steps"]
    assert step["metrics"] == {"prompt_tokens": 7, "extra": {"tool_tokens": 2, "output_tokens": 3}}
    assert document["final_metrics"] == {"total_steps": 1}


def test_a_request_with_unknown_tokens() -> None:
    """If a request has unknown tokens, neither its step nor the run has totals. Both report the
    number of such requests."""
    document = _document(recorded("interrupted"))
    step = document["steps"][1]
    assert (step["metrics"], step["llm_call_count"]) == ({"extra": {"unknown_requests": 1}}, 1)
    known = {"known_prompt_tokens": 0, "known_completion_tokens": 0}
    assert document["final_metrics"] == {"total_steps": 3, "extra": {"unknown_requests": 1, **known}}


def test_a_request_that_the_api_refused() -> None:
    """A request that the API refused is not counted as a model call of a step."""
    failed = _tokens(input=0, output=0, tool=0, thinking=0, cached=0, request=1, status=503)
    answered = _tokens(input=5, output=3, tool=0, thinking=0, cached=0, request=2, status=200, repeat=True)
    (step,) = _document([failed, answered])["steps"]
    assert (step["llm_call_count"], step["metrics"]["prompt_tokens"]) == (1, 5)
    (last,) = _document([failed])["steps"]
    assert last["source"] == "system"


def test_a_discarded_answer_is_marked() -> None:
    """The step of a discarded answer lists the number of its request."""
    end = msgspec.structs.replace(recorded("plain")[-1], discarded=(1,))
    first, second, *_ = _document(
        [_tokens(request=1), msgspec.structs.replace(_tokens(request=2), turn=2), end]
    )["steps"]
    assert (first["extra"], second["extra"]) == ({"turn": 1, "discarded_requests": [1]}, {"turn": 2})


def test_the_totals_of_a_run_without_the_gateway() -> None:
    """Without the gateway the totals are unknown. The numbers that the CLI reported are in
    `extra`."""
    usage = Usage(input=1000, cached=300, output=20, total=1027)
    end = msgspec.structs.replace(recorded("plain")[-1], usage=usage, cost=None)
    final = _document([end])["final_metrics"]
    extra = {"total_tokens": 1027, "input_tokens": 1000, "output_tokens": 20}
    assert final == {"total_cached_tokens": 300, "total_steps": 1, "extra": extra}


def test_a_denied_call_without_input() -> None:
    """A denied call without an input has the command of its permission request, or else its
    title."""
    asked = PermissionAsked(**_COMMON, id="t1", tool="x", kind="execute", title="rm a", command="rm a")
    end = ToolFinished(**_tool(status="denied", error="no", input=None))
    begin = _tool_started(input=None)
    (call,) = _document([begin, asked, end])["steps"][0]["tool_calls"]
    assert call["arguments"] == {"command": "rm a"}
    assert "extra" not in call
    (call,) = _document([begin, end])["steps"][0]["tool_calls"]
    assert (call["arguments"], call["extra"]) == ({}, {"title": "Read a"})


def test_nothing_after_the_end() -> None:
    """Events after the first end of a run are ignored."""
    events = recorded("plain")
    assert _document([*events, *recorded("loop")]) == _document(events)


def test_late_events_are_added_to_their_turn() -> None:
    """Text, a thought, tokens, the end of a call and a subagent's thought that arrive after the
    next turn has begun are added to their own turn."""
    second = {**_COMMON, "turn": 2}
    events: list[Event] = [
        Text(**_COMMON, text="one "),
        _tool_started(),
        _tool_started(id="t2"),
        ToolFinished(**_tool(status="ok", output="x")),
        Text(**second, text="two"),
        Text(**_COMMON, text="more"),
        Thought(**_COMMON, subject="Late", text="hm"),
        ToolFinished(**_tool(id="t2", status="failed", error="y")),
        Thought(**_COMMON, subject=None, text="inner", parent="t1"),
        _tokens(input=1, tool=0),
    ]
    document = _document(events)
    check(document)
    first, last = document["steps"]
    assert (first["message"], last["message"]) == ("one more", "two")
    assert first["reasoning_content"] == "Late: hm"
    assert first["metrics"]["prompt_tokens"] == 1
    assert [one.get("content") for one in first["observation"]["results"]] == ["x", "y"]
    assert first["observation"]["results"][0]["subagent_trajectory_ref"] == [{"trajectory_id": "t1"}]


def test_a_reused_call_id() -> None:
    """If the CLI uses a call id twice, each of the two calls has its own result."""
    second = {**_COMMON, "turn": 2}
    ends = [ToolFinished(**_tool(status="ok", output=one)) for one in ("x", "y")]
    second_call = [msgspec.structs.replace(one, **second) for one in (_tool_started(), ends[1])]
    steps = _document([_tool_started(), ends[0], *second_call])["steps"]
    assert [len(step["tool_calls"]) for step in steps] == [1, 1]
    assert [step["observation"]["results"][0]["content"] for step in steps] == ["x", "y"]


def test_deeply_nested_arguments() -> None:
    """Arguments that are nested too deeply become {}, and the document stays valid."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    document = _document([_tool_started(input=deep)])
    check(document)
    assert document["steps"][0]["tool_calls"][0]["arguments"] == {}
