"""Write stored conversations as ATIF documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hostile_session
from atif_check import check
from geminids.dialects.atif import trajectory
from geminids.errors import SessionError
from geminids.gemini.protocol.journal.records import StoredMessage, decode_message
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import Agents
from recordings import FIXTURES, VERSIONS, all_files, recorded

# The example in the description of the format.
_EXAMPLE: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "s1",
    "agent": {"name": "gemini-cli", "version": "0.61.0", "model_name": "gemini-2.5-pro"},
    "steps": [
        {"step_id": 1, "source": "user", "timestamp": "2026-01-01T00:00:00Z", "message": "Ask"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "reasoning_content": "Plan: ask",
            "tool_calls": [{"tool_call_id": "t2", "function_name": "invoke_agent", "arguments": {}}],
            "observation": {
                "results": [{"source_call_id": "t2", "subagent_trajectory_ref": [{"trajectory_id": "sub1"}]}]
            },
            "metrics": {"prompt_tokens": 100, "completion_tokens": 9, "cached_tokens": 20},
            "llm_call_count": 1,
        },
    ],
    "final_metrics": {"total_prompt_tokens": 100, "total_steps": 2},
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.8",
            "trajectory_id": "sub1",
            "agent": {"name": "helper", "version": "0.61.0"},
            "steps": [{"step_id": 1, "source": "user", "message": "check"}],
        }
    ],
}


def _document(file: Path) -> Any:
    journal = open_journal(file)
    session_id = journal.header.session_id if journal.header else file.stem
    pieces = trajectory(journal.messages, session_id=session_id, agents=Agents(file, session_id))
    return json.loads(b"".join(pieces))


def _document_of_records(*records: dict[str, Any]) -> Any:
    decoded = [decode_message(json.dumps(record).encode()) for record in records]
    messages = [message for message in decoded if isinstance(message, StoredMessage)]
    return json.loads(b"".join(trajectory(messages, session_id="s1")))


def _change_example(path: tuple[Any, ...], value: Any) -> Any:
    document = json.loads(json.dumps(_EXAMPLE))
    parent = document
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return document


def test_the_check_accepts_the_example() -> None:
    """Our check accepts the example in the description of the format."""
    check(_EXAMPLE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("own",), 1),
        (("agent", "version"), None),
        (("steps", 0, "own"), 1),
        (("steps", 0, "step_id"), 2),
        (("steps", 0, "metrics"), {}),
        (("steps", 1, "llm_call_count"), 0),
        (("steps", 1, "observation", "extra"), {}),
        (("steps", 1, "observation", "results", 0, "source_call_id"), "t9"),
        (("steps", 1, "observation", "results", 0, "subagent_trajectory_ref"), [{"trajectory_id": "no"}]),
        (("final_metrics", "total_steps"), 7),
        (("subagent_trajectories", 0, "steps"), []),
    ],
)
def test_the_check_is_strict(path: tuple[Any, ...], value: Any) -> None:
    """Our check rejects a document with one error."""
    with pytest.raises(AssertionError):
        check(_change_example(path, value))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_each_release(version: str) -> None:
    """For each release, results are in the step of their calls, thoughts are reasoning, and tokens
    are metrics."""
    document = _document(recorded(version, "What is x?")[0])
    check(document)
    steps = [step for step in document["steps"] if step["source"] != "system"]
    assert steps[0]["source"] == "user"
    assert steps[0]["message"] == "What is x?"
    assert steps[1]["reasoning_content"] == "Look first: I read the file."
    calls = [call for step in steps for call in step.get("tool_calls", [])]
    names = ["read_file", "write_file", "run_shell_command", "read_file"]
    assert [call["function_name"] for call in calls] == names
    results = [one for step in steps for one in step.get("observation", {}).get("results", [])]
    assert results[0]["content"] == "x = 1\n"
    assert len(results) == 4
    last = {"prompt_tokens": 100, "completion_tokens": 12, "cached_tokens": 40}
    assert steps[-1]["metrics"] == {**last, "extra": {"thoughts_tokens": 5, "tool_tokens": 0}}


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_a_subagent_is_embedded(version: str) -> None:
    """A subagent's trajectory is embedded, its call refers to it, and the totals include its
    tokens."""
    document = _document(recorded(version, "Ask an agent.")[0])
    check(document)
    (inner,) = document["subagent_trajectories"]
    assert inner["agent"]["name"] == "generalist"
    assert document["final_metrics"]["total_prompt_tokens"] == 400
    refs = [
        ref["trajectory_id"]
        for step in document["steps"]
        for result in step.get("observation", {}).get("results", [])
        for ref in result.get("subagent_trajectory_ref", [])
    ]
    assert refs == [inner["trajectory_id"]]


def test_every_recording_is_valid() -> None:
    """Every recorded session gives a valid document. A session without messages raises
    `SessionError`, because ATIF requires a step."""
    files = [*all_files(), *(FIXTURES.rglob("session-*.json") if FIXTURES.is_dir() else ())]
    valid = 0
    for file in files:
        try:
            document = _document(file)
        except SessionError:
            assert list(open_journal(file).messages) == []
            continue
        check(document)
        valid += 1
    assert valid > 15


def test_tool_tokens_are_prompt_tokens_and_thinking_is_completion() -> None:
    """Tool tokens count as prompt tokens and thinking as completion tokens. The notes of the
    document explain that."""
    tokens = {"input": 100, "output": 8, "cached": 20, "thoughts": 10, "tool": 2, "total": 120}
    document = _document_of_records({"id": "g", "type": "gemini", "content": "x", "tokens": tokens})
    final = document["final_metrics"]
    assert (final["total_prompt_tokens"], final["total_completion_tokens"]) == (102, 18)
    assert "tool prompts are counted as prompt tokens" in document["notes"]


def test_unusual_messages_give_valid_steps() -> None:
    """A result without its call, a call without an id or a result, an invalid time, and media give
    valid steps."""
    result = {"functionResponse": {"id": "t1", "name": "glob", "response": {"output": {"a": 1}}}}
    document = _document_of_records(
        {"id": "r", "type": "user", "content": [result], "timestamp": "yesterday"},
        {"id": "g", "type": "gemini", "toolCalls": [{"name": "", "args": {}}, {"id": "", "name": "x"}]},
        {"id": "i", "type": "info", "content": "Compressed."},
        {"id": "e", "type": "info", "content": ""},
        {"id": "u", "type": "user", "content": [{"inlineData": {"mimeType": "image/png", "data": "x"}}]},
    )
    check(document)
    assert [step["source"] for step in document["steps"]] == ["system", "agent", "system", "user"]
    assert document["steps"][0]["observation"]["results"] == [{"content": '{"a":1}'}]
    assert document["steps"][3]["extra"]["media"] == ["image/png"]


def test_a_hostile_session_is_valid() -> None:
    """A session with hostile ids and names gives a valid document."""
    check(json.loads(b"".join(trajectory(hostile_session.messages(), session_id="s"))))


def test_a_session_without_messages() -> None:
    """A session without messages raises one clear error before the first piece is written."""
    with pytest.raises(SessionError, match="no messages"):
        next(iter(trajectory([], session_id="s")))
