"""The result of agent-cli-sdk's `execute`, built from events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.dialects.claude import Executed, executed
from geminids.events.model import AnyEvent, Finished, Started, Text, ToolFinished
from golden import GOLDEN, check_golden
from random_events import RECORDED, any_events, recorded, valid_runs


def as_json(result: Executed) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    return value


def run_with_text(text: str) -> list[Any]:
    """Return the events of a successful run with this text."""
    started, *_, finished = recorded("plain")
    output = Text(at=started.at, seq=1, attempt=1, turn=1, text=text)
    return [started, output, msgspec.structs.replace(finished, text=text, answer=text)]


@pytest.mark.parametrize("name", RECORDED)
def test_golden(name: str) -> None:
    """The result for a recorded run equals its golden file."""
    output = msgspec.json.format(msgspec.json.encode(executed(recorded(name))), indent=1)
    check_golden(GOLDEN / "claude-execute" / f"{name}.json", output + b"\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("plain", 0),
        ("asked", 0),
        ("timed_out", -1),
        ("interrupted", 130),
        ("max_turns", 53),
        ("no_result", -9),
        ("loop", 1),
    ],
)
def test_exit_codes(name: str, code: int) -> None:
    """Only a success has the exit code 0. A time-out has -1, and a failure for which the CLI exits
    with 0 has 1."""
    result = executed(recorded(name))
    assert (result.exit_code, result.success) == (code, code == 0)
    assert (result.error is None) == result.success


def test_messages() -> None:
    """The messages are the prompt and one message per turn: thinking, each call with its result,
    text, tokens and the original turn."""
    result = as_json(executed(recorded("tools")))
    assert [message["role"] for message in result["messages"]] == ["user"] + ["assistant"] * 4
    first = result["messages"][1]
    assert [block["type"] for block in first["content"]] == [
        "thinking",
        "tool_use",
        "tool_result",
        "tool_use",
        "tool_result",
        "text",
    ]
    assert first["content"][1]["name"] == "Read"
    assert first["usage"]["total_tokens"] == 1027
    assert (first["tool"], first["model"]) == ("gemini", "gemini-3.8-flash")
    assert first["_original"]["number"] == 1
    assert result["messages"][0]["content"] == [{"type": "text", "text": "Do the tools."}]
    assert result["data"] == "Let me see. All done."
    assert "error" not in result


def test_tools_of_subagents_are_left_out() -> None:
    """The messages contain the call of a subagent, but not the tools that the subagent used."""
    result = as_json(executed(recorded("subagent")))
    calls = [block["name"] for block in result["messages"][1]["content"] if block["type"] == "tool_use"]
    assert calls == ["Task"]


def test_a_run_without_an_end() -> None:
    """A run without an end is no success, and its text is kept."""
    result = executed(run_with_text("half")[:-1])
    assert (result.success, result.exit_code, result.data) == (False, -1, "half")
    assert result.error == "the run gave no result"
    assert executed([]).session_id == ""


def test_unknown_tokens() -> None:
    """A message has no usage if one of its token counts is unknown."""
    events = [
        msgspec.structs.replace(event, thinking=None) if event.__class__.__name__ == "TokensUsed" else event
        for event in recorded("plain")
    ]
    assert executed(events).messages[1].usage is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]", [1, 2]),
        ('Here:\n```json\n{"a": 1}\n```\nand {no}', {"a": 1}),
        ("```\nno\n```\n```json\n[1]\n```", [1]),
        ('It is {"a": {"b": 2}}, I think.', {"a": {"b": 2}}),
        ("nothing {of the kind}", None),
        ("nothing", None),
        ("} {", None),
    ],
)
def test_json_in_the_text(text: str, value: Any) -> None:
    """With `json=True` the data is the JSON value of the whole text, else of a fenced block, else
    of the text between the outermost braces, else None."""
    assert executed(run_with_text(text), json=True).data == value


@given(any_events)
def test_any_events(events: list[AnyEvent]) -> None:
    """Any events give a result with all required fields that can be encoded as JSON."""
    assert set(as_json(executed(events))) >= {
        "success",
        "exitCode",
        "sessionId",
        "duration",
        "messages",
        "data",
    }


@given(valid_runs())
def test_text_is_preserved(events: list[AnyEvent]) -> None:
    """The data is the text of the last attempt, to the character."""
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert executed(events).data == finished.text


def test_a_deeply_nested_input() -> None:
    """A deeply nested tool input does not raise."""
    events: list[Any] = list(recorded("failed_tool"))
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    events = [
        msgspec.structs.replace(event, input=deep) if isinstance(event, ToolFinished) else event
        for event in events
        if not isinstance(event, Started)
    ]
    assert executed(events).messages[0].role == "assistant"
