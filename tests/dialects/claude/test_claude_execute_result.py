"""What `execute` of agent-cli-sdk returns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from geminids.dialects.claude import Executed, executed
from geminids.events.model import AnyEvent, Finished, Started, Text, ToolFinished
from golden import GOLDEN, check_golden
from random_events import RECORDED, any_events, lawful_runs, recorded


def shown(result: Executed) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    return value


def ending(text: str) -> list[Any]:
    """A run that says one text."""
    started, *_, finished = recorded("plain")
    said = Text(at=started.at, seq=1, attempt=1, turn=1, text=text)
    return [started, said, msgspec.structs.replace(finished, text=text, answer=text)]


@pytest.mark.parametrize("name", RECORDED)
def test_golden(name: str) -> None:
    """What `execute` says of a recorded run stays the same to the byte."""
    said = msgspec.json.format(msgspec.json.encode(executed(recorded(name))), indent=1)
    check_golden(GOLDEN / "claude-execute" / f"{name}.json", said + b"\n")


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
    """Only a success has 0; -1 is a time-out, and where the CLI ends a failure with 0 the code is our own."""
    result = executed(recorded(name))
    assert (result.exit_code, result.success) == (code, code == 0)
    assert (result.error is None) == result.success


def test_messages() -> None:
    """The prompt, then each turn: thinking, each call with its result, text; tokens and the turn itself with it."""
    told = shown(executed(recorded("tools")))
    assert [message["role"] for message in told["messages"]] == ["user"] + ["assistant"] * 4
    first = told["messages"][1]
    assert [block["type"] for block in first["content"]] == [
        "thinking",
        "tool_use",
        "tool_result",
        "tool_use",
        "tool_result",
        "text",
    ]
    assert first["content"][1]["name"] == "Read"
    assert first["usage"]["totalTokens"] == 1027
    assert (first["tool"], first["model"]) == ("gemini", "gemini-3.8-flash")
    assert first["_original"]["number"] == 1
    assert told["messages"][0]["content"] == [{"type": "text", "text": "Do the tools."}]
    assert told["data"] == "Let me see. All done."
    assert "error" not in told


def test_subagents_are_no_part() -> None:
    """What a subagent did is not in the messages: they are the agent's own."""
    told = shown(executed(recorded("subagent")))
    calls = [block["name"] for block in told["messages"][1]["content"] if block["type"] == "tool_use"]
    assert calls == ["Task"]


def test_no_end() -> None:
    """Without an end it is no success, and what was said is there."""
    result = executed(ending("half")[:-1])
    assert (result.success, result.exit_code, result.data) == (False, -1, "half")
    assert result.error == "the run gave no result"
    assert executed([]).session_id == ""


def test_unknown_tokens() -> None:
    """Tokens of which one is not known are left out."""
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
def test_json(text: str, value: Any) -> None:
    """The value is the whole text, else a fenced block, else what stands between the outermost braces."""
    assert executed(ending(text), json=True).data == value


@given(any_events)
def test_any_events(events: list[AnyEvent]) -> None:
    """Whatever is heard, there is a result that is JSON."""
    assert set(shown(executed(events))) >= {
        "success",
        "exitCode",
        "sessionId",
        "duration",
        "messages",
        "data",
    }


@given(lawful_runs())
def test_text_is_preserved(events: list[AnyEvent]) -> None:
    """The text of the last attempt is there to the character."""
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert executed(events).data == finished.text


def test_deep_input() -> None:
    """An input as deep as can be breaks nothing."""
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
