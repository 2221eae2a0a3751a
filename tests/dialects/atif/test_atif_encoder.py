"""Runs as ATIF documents."""

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
from golden import GOLDEN, check_golden, spoken
from random_events import RECORDED, any_events, lawful_runs, recorded, text_of

_COMMON: dict[str, Any] = {"at": 1_794_800_000_000, "seq": 0, "attempt": 1, "turn": 1}


def _document(events: Sequence[Event]) -> Any:
    encoder = Encoder()
    assert encoder.feed(events) == b""
    return json.loads(encoder.finish())


def _started(**fields: Any) -> Started:
    given = {"session_id": "s1", "model": "flash", "cwd": "/x", "cli_version": "0.61.0", "prompt": "Do it."}
    return Started(**{**_COMMON, "run_id": "run-1", "lane": "headless", "pid": 1, **given, **fields})


def _tool(**fields: Any) -> dict[str, Any]:
    return {**_COMMON, "id": "t1", "name": "read_file", "input": {"file_path": "a"}, **fields}


def _begin(**fields: Any) -> ToolStarted:
    return ToolStarted(**_tool(kind="read", title="Read a", **fields))


def _tokens(role: Any = "main", **fields: Any) -> TokensUsed:
    known: dict[str, Any] = dict.fromkeys(("input", "cached", "output", "thinking", "tool"))
    return TokensUsed(**_COMMON, model="gemini-3.8-flash", role=role, **{**known, **fields})


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name: str) -> None:
    """Each recorded run is a valid document, to the byte the one that was looked at."""
    said = spoken("atif", name)
    check(json.loads(said))
    check_golden(GOLDEN / "atif" / f"{name}.json", said)


@given(st.one_of(any_events, lawful_runs()))
def test_whatever_is_heard_is_a_valid_document(events: list[AnyEvent]) -> None:
    """No sequence of events makes it raise, and the format's rules hold for all of them."""
    check(_document(events))


@given(lawful_runs())
def test_text_is_preserved(events: list[AnyEvent]) -> None:
    """The agent's messages, joined, are what it said in its last attempt."""
    steps = _document(events)["steps"]
    said = "".join(step["message"] for step in steps if step["source"] == "agent")
    assert said == text_of(events)


def test_a_run_of_tools() -> None:
    """A step a turn: results sit in the step of their calls, with exit code and time."""
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


def test_a_subagent_has_a_trajectory_of_its_own() -> None:
    """Its thoughts and calls are embedded, begin with its prompt, and its call refers to them."""
    document = _document(recorded("subagent"))
    (inner,) = document["subagent_trajectories"]
    (result,) = document["steps"][1]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": inner["trajectory_id"]}]
    assert inner["agent"]["name"] == "generalist"
    assert [step["source"] for step in inner["steps"]] == ["user", "agent", "agent"]
    assert inner["steps"][0]["message"] == "Do the subtask."
    assert inner["steps"][1]["reasoning_content"] == "Sub: I read."
    assert document["final_metrics"]["total_prompt_tokens"] == 4000


def test_why_it_ended_is_the_last_step() -> None:
    """A run that did not succeed says so: in a step of the system, and in `extra`."""
    document = _document(recorded("max_turns"))
    last = document["steps"][-1]
    assert last["source"] == "system"
    assert document["extra"]["outcome"] == "max_turns"
    end = recorded("max_turns")[-1]
    assert isinstance(end, Finished)
    assert last["message"] == end.reason


def test_a_run_that_never_began() -> None:
    """Not one event, and still a valid document: with an empty step, and no outcome."""
    document = _document([])
    check(document)
    assert [step["message"] for step in document["steps"]] == [""]
    assert document["extra"] == {"complete": False}
    assert "session_id" not in document


def test_the_last_attempt_counts() -> None:
    """What an attempt said that was given up is not in the document."""
    lost = Text(**_COMMON, text="lost")
    kept = Text(**_COMMON, text="kept")
    document = _document([_started(), lost, _started(session_id="s2"), kept])
    assert [step["message"] for step in document["steps"]] == ["Do it.", "kept"]
    assert document["session_id"] == "s2"
    assert document["extra"]["attempts"] == 2


def test_an_input_that_is_known_late() -> None:
    """On the warm lane the end of a call tells its input, and whether it was allowed."""
    decided = PermissionDecided(
        **_COMMON, id="t1", tool="read_file", decision="deny", by="person", reason="no"
    )
    end = ToolFinished(**_tool(status="denied", error="not allowed"))
    step = _document([_begin(input=None), decided, end])["steps"][0]
    (call,) = step["tool_calls"]
    assert call["arguments"] == {"file_path": "a"}
    assert call["extra"] == {"permission": {"decision": "deny", "by": "person", "reason": "no"}}
    assert step["observation"]["results"] == [
        {"source_call_id": "t1", "content": "not allowed", "extra": {"status": "denied"}}
    ]


def test_a_decision_about_no_call() -> None:
    """A decision whose call was never told of changes nothing."""
    decided = PermissionDecided(**_COMMON, id="t9", tool="x", decision="deny", by="rule")
    assert _document([_started(), decided]) == _document([_started()])


def test_results_and_calls_by_themselves() -> None:
    """A call without its end has no result; an end without its call makes the call."""
    step = _document([_begin(id="t0"), ToolFinished(**_tool(status="ok", output="x"))])["steps"][0]
    assert [call["tool_call_id"] for call in step["tool_calls"]] == ["t0", "t1"]
    assert [one["source_call_id"] for one in step["observation"]["results"]] == ["t1"]


def test_a_subagent_whose_call_goes_on() -> None:
    """What it did is told and referred to, also where its call has not ended, or was never told of."""
    inner = Thought(**_COMMON, subject=None, text="hm", parent="t1")
    other = Thought(**_COMMON, subject=None, text="hm", parent="t7")
    document = _document([_begin(name="invoke_agent"), inner, other])
    check(document)
    (result,) = document["steps"][0]["observation"]["results"]
    assert result == {"source_call_id": "t1", "subagent_trajectory_ref": [{"trajectory_id": "t1"}]}
    assert [one["trajectory_id"] for one in document["subagent_trajectories"]] == ["t1", "t7"]
    assert document["subagent_trajectories"][1]["agent"]["name"] == "subagent"


def test_tokens_that_are_not_known() -> None:
    """A sum of which a part is not known is left out, and never too small; what is known of it is in `extra`."""
    document = _document([_tokens(input=5, tool=2, output=3), _tokens(role="router", input=1)])
    (step,) = document["steps"]
    assert step["metrics"] == {"prompt_tokens": 7, "extra": {"tool_tokens": 2, "output_tokens": 3}}
    assert document["final_metrics"] == {"total_steps": 1}


def test_a_request_with_unknown_tokens() -> None:
    """Neither the step nor the run has a total: both say how many requests are missing in what is known."""
    document = _document(recorded("interrupted"))
    step = document["steps"][1]
    assert (step["metrics"], step["llm_call_count"]) == ({"extra": {"unknown_requests": 1}}, 1)
    known = {"known_prompt_tokens": 0, "known_completion_tokens": 0}
    assert document["final_metrics"] == {"total_steps": 3, "extra": {"unknown_requests": 1, **known}}


def test_a_request_that_the_api_refused() -> None:
    """It is no inference: no step and no call of a step counts it."""
    failed = _tokens(input=0, output=0, tool=0, thinking=0, cached=0, request=1, status=503)
    answered = _tokens(input=5, output=3, tool=0, thinking=0, cached=0, request=2, status=200, repeat=True)
    (step,) = _document([failed, answered])["steps"]
    assert (step["llm_call_count"], step["metrics"]["prompt_tokens"]) == (1, 5)
    (last,) = _document([failed])["steps"]
    assert last["source"] == "system"


def test_a_discarded_answer_is_marked() -> None:
    """Its step has the tokens that were paid, and says that the CLI did not use the answer."""
    end = msgspec.structs.replace(recorded("plain")[-1], discarded=(1,))
    first, second, *_ = _document(
        [_tokens(request=1), msgspec.structs.replace(_tokens(request=2), turn=2), end]
    )["steps"]
    assert (first["extra"], second["extra"]) == ({"turn": 1, "discarded_requests": [1]}, {"turn": 2})


def test_the_totals_of_a_run_without_the_gateway() -> None:
    """Thinking and tool prompts are one remainder there: neither total is known, all that was told is."""
    usage = Usage(input=1000, cached=300, output=20, total=1027)
    end = msgspec.structs.replace(recorded("plain")[-1], usage=usage, cost=None)
    final = _document([end])["final_metrics"]
    told = {"total_tokens": 1027, "input_tokens": 1000, "output_tokens": 20}
    assert final == {"total_cached_tokens": 300, "total_steps": 1, "extra": told}


def test_a_refused_call_says_what_it_wanted() -> None:
    """A command by the question, anything else by its title: its input never comes."""
    asked = PermissionAsked(**_COMMON, id="t1", tool="x", kind="execute", title="rm a", command="rm a")
    end = ToolFinished(**_tool(status="denied", error="no", input=None))
    begin = _begin(input=None)
    (call,) = _document([begin, asked, end])["steps"][0]["tool_calls"]
    assert call["arguments"] == {"command": "rm a"}
    assert "extra" not in call
    (call,) = _document([begin, end])["steps"][0]["tool_calls"]
    assert (call["arguments"], call["extra"]) == ({}, {"title": "Read a"})


def test_nothing_after_the_end() -> None:
    """The first end counts, and what comes behind it is another run's."""
    events = recorded("plain")
    assert _document([*events, *recorded("loop")]) == _document(events)


def test_what_comes_late_is_added_to_its_turn() -> None:
    """Also to one that was made small when the next began: text, a thought, tokens, the end of a call, a subagent."""
    second = {**_COMMON, "turn": 2}
    events: list[Event] = [
        Text(**_COMMON, text="one "),
        _begin(),
        _begin(id="t2"),
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


def test_the_same_id_again() -> None:
    """The CLI may use it twice: each call has its own end."""
    second = {**_COMMON, "turn": 2}
    ends = [ToolFinished(**_tool(status="ok", output=one)) for one in ("x", "y")]
    again = [msgspec.structs.replace(one, **second) for one in (_begin(), ends[1])]
    steps = _document([_begin(), ends[0], *again])["steps"]
    assert [len(step["tool_calls"]) for step in steps] == [1, 1]
    assert [step["observation"]["results"][0]["content"] for step in steps] == ["x", "y"]


def test_arguments_as_deep_as_json_can_be() -> None:
    """They cost the arguments, not the document."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    document = _document([_begin(input=deep)])
    check(document)
    assert document["steps"][0]["tool_calls"][0]["arguments"] == {}
