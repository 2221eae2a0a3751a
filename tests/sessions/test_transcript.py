"""A conversation as it is read, entry by entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_session
from geminids.gemini.protocol.journal.records import Message, decode_message
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import (
    Agents,
    AgentText,
    Entry,
    Prompt,
    Remark,
    Thought,
    Tool,
    TurnEnd,
    entries,
)
from recordings import FIXTURES, VERSIONS, all_files, recorded


def _read(file: Path) -> list[Entry]:
    journal = open_journal(file)
    return list(entries(journal.messages, Agents(file, journal.header.session_id if journal.header else "")))


def _said(*records: dict[str, Any]) -> list[Entry]:
    found = [decode_message(json.dumps(record).encode()) for record in records]
    return list(entries([message for message in found if isinstance(message, Message)]))


def _brief(entry: Entry) -> Any:
    if isinstance(entry, Tool):
        return (entry.name, entry.status, entry.exit_code)
    return type(entry).__name__


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_each_release(version: str) -> None:
    """Prompt, thought, text, the tools with their state and exit code, the answer, what it took; then the next turn."""
    file, _ = recorded(version, "What is x?")
    found = _read(file)
    kinds = [_brief(entry) for entry in found]
    assert kinds == [
        "Prompt",
        "Thought",
        "AgentText",
        ("read_file", "ok", None),
        ("write_file", "ok", None),
        ("run_shell_command", "ok", 3),
        ("read_file", "failed", None),
        "Thought",
        "AgentText",
        "TurnEnd",
        "Prompt",
        "AgentText",
        "TurnEnd",
    ]
    thought = next(entry for entry in found if isinstance(entry, Thought))
    assert (thought.subject, thought.text) == ("Look first", "I read the file.")
    tools = [entry for entry in found if isinstance(entry, Tool)]
    assert tools[0].output == "x = 1\n"
    assert "File not found" in (tools[3].error or "")
    last = found[-1]
    assert isinstance(last, TurnEnd)
    assert (last.requests, last.input, last.cached, last.output, last.thinking) == (1, 100, 40, 7, 5)


def test_parallel_calls_have_their_own_results() -> None:
    """Also where a checkpoint gives each of them the results of all."""
    file, _ = recorded("0.61.0", "Read and list.")
    outputs = {entry.name: entry.output or "" for entry in _read(file) if isinstance(entry, Tool)}
    assert outputs["read_file"] == "x = 1\n"
    assert outputs["list_directory"].startswith("Directory listing")


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_a_subagent_stands_behind_its_call(version: str) -> None:
    """One level deeper, with its own prompt, thoughts, tools and tokens; and once."""
    file, _ = recorded(version, "Ask an agent.")
    found = [(entry.depth, _brief(entry)) for entry in _read(file)]
    assert found == [
        (0, "Prompt"),
        (0, ("invoke_agent", "ok", None)),
        (1, "Prompt"),
        (1, "Thought"),
        (1, ("read_file", "ok", None)),
        (1, ("complete_task", "ok", None)),
        (1, "TurnEnd"),
        (0, "AgentText"),
        (0, "TurnEnd"),
    ]


def test_a_subagent_whose_call_is_gone_is_not_lost(tmp_path: Path) -> None:
    """It comes at the end."""
    main = tmp_path / "session-2026-01-01T00-00-aaaaaaaa.jsonl"
    main.write_text('{"sessionId":"s1","projectHash":"h"}\n{"id":"m","type":"user","content":"hi"}\n')
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "agent.jsonl").write_text(
        '{"sessionId":"agent","projectHash":"h"}\n{"id":"a","type":"user","content":"look"}\n'
    )
    found = _read(main)
    assert [(entry.depth, _brief(entry)) for entry in found] == [(0, "Prompt"), (0, "Remark"), (1, "Prompt")]


def test_what_the_cli_says_in_the_users_name_is_no_prompt() -> None:
    """Its context is left out, and results that are told again; its own remarks are remarks."""
    answer = {"functionResponse": {"id": "t1", "name": "glob", "response": {"output": "a"}}}
    call = {"id": "t1", "name": "glob", "status": "success", "result": [answer]}
    found = _said(
        {"id": "c", "type": "user", "content": "<session_context>x</session_context>"},
        {"id": "g", "type": "gemini", "content": "", "toolCalls": [call]},
        {"id": "r", "type": "user", "content": [answer]},
        {"id": "i", "type": "info", "content": "Compressed."},
    )
    assert [type(entry) for entry in found] == [Tool, Remark, TurnEnd]


def test_a_result_whose_call_is_gone_is_shown() -> None:
    """By the name that the result has."""
    answer = {"functionResponse": {"id": "t1", "name": "glob", "response": {"output": "a"}}}
    found = _said({"id": "r", "type": "user", "content": [answer]})
    assert [(one.name, one.output) for one in found if isinstance(one, Tool)] == [("glob", "a")]


@pytest.mark.parametrize(
    ("status", "result", "expected"),
    [
        ("executing", None, "unfinished"),
        ("cancelled", None, "cancelled"),
        ("error", {"error": "Tool execution denied by policy."}, "denied"),
        ("error", {"error": "boom"}, "failed"),
        ("success", {"output": "Command was cancelled by user before it could complete."}, "cancelled"),
        ("success", {"output": "x"}, "ok"),
    ],
)
def test_what_became_of_a_call(status: str, result: Any, expected: str) -> None:
    """A call that is not over is not called a success."""
    told = [{"functionResponse": {"id": "t", "response": result}}] if result else None
    call = {"id": "t", "name": "run_shell_command", "status": status, "result": told}
    (tool, _) = _said({"id": "g", "type": "gemini", "toolCalls": [call]})
    assert isinstance(tool, Tool)
    assert tool.status == expected


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recordings of 0.11 are not here")
def test_sessions_of_0_11() -> None:
    """All of them have prompts and tools."""
    for file in sorted((FIXTURES / "full").glob("*.json")):
        kinds = {type(entry) for entry in _read(file)}
        assert Prompt in kinds, file
        assert kinds & {Tool, AgentText}, file


def test_every_recording_can_be_read() -> None:
    """Files of subagents too."""
    assert sum(len(_read(file)) for file in all_files()) > 100


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_PART = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("text", "thought", "functionCall", "functionResponse", "inlineData"), _JSON),
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.text(max_size=3), "type": st.sampled_from(["user", "gemini", "info", ""])},
            optional={
                "content": _JSON | st.lists(_PART, max_size=3),
                "toolCalls": st.lists(
                    st.fixed_dictionaries(
                        {},
                        optional={
                            "id": st.text(max_size=3),
                            "result": _JSON | st.lists(_PART, max_size=2),
                            "status": _JSON,
                            "resultDisplay": _JSON,
                        },
                    ),
                    max_size=2,
                ),
                "thoughts": _JSON,
                "tokens": _JSON,
            },
        ),
        max_size=4,
    )
)
def test_nothing_in_a_message_raises(records: list[dict[str, Any]]) -> None:
    """Whatever the shape of its parts."""
    _said(*records)


def test_a_hostile_session_is_only_text() -> None:
    """It has the entries that it should have."""
    kinds = [type(entry).__name__ for entry in entries(hostile_session.messages())]
    assert kinds == ["Prompt", "Thought", "AgentText", "Tool", "Tool", "Tool", "Remark", "TurnEnd"]
