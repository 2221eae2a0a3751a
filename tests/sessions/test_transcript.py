"""The transcript of a stored session, entry by entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_session
from geminids.gemini.protocol.journal.records import StoredMessage, decode_message
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import (
    Agents,
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEnd,
    entries,
)
from recordings import FIXTURES, VERSIONS, all_files, recorded


def _read(file: Path) -> list[TranscriptEntry]:
    journal = open_journal(file)
    return list(entries(journal.messages, Agents(file, journal.header.session_id if journal.header else "")))


def _entries_of(*records: dict[str, Any]) -> list[TranscriptEntry]:
    decoded = [decode_message(json.dumps(record).encode()) for record in records]
    return list(entries([message for message in decoded if isinstance(message, StoredMessage)]))


def _summarize(entry: TranscriptEntry) -> Any:
    if isinstance(entry, ToolEntry):
        return (entry.name, entry.status, entry.exit_code)
    return type(entry).__name__


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_each_release(version: str) -> None:
    """A session of each release gives prompts, thoughts, texts, tools with status and exit code,
    and the usage of each turn.
    """
    file, _ = recorded(version, "What is x?")
    transcript = _read(file)
    kinds = [_summarize(entry) for entry in transcript]
    assert kinds == [
        "PromptEntry",
        "ThoughtEntry",
        "TextEntry",
        ("read_file", "ok", None),
        ("write_file", "ok", None),
        ("run_shell_command", "ok", 3),
        ("read_file", "failed", None),
        "ThoughtEntry",
        "TextEntry",
        "TurnEnd",
        "PromptEntry",
        "TextEntry",
        "TurnEnd",
    ]
    thought = next(entry for entry in transcript if isinstance(entry, ThoughtEntry))
    assert (thought.subject, thought.text) == ("Look first", "I read the file.")
    tools = [entry for entry in transcript if isinstance(entry, ToolEntry)]
    assert tools[0].output == "x = 1\n"
    assert "File not found" in (tools[3].error or "")
    last = transcript[-1]
    assert isinstance(last, TurnEnd)
    assert (last.requests, last.input, last.cached, last.output, last.thinking) == (1, 100, 40, 7, 5)


def test_parallel_calls_have_their_own_results() -> None:
    """Parallel calls have their own results, also if a checkpoint stores all results with each
    call.
    """
    file, _ = recorded("0.61.0", "Read and list.")
    outputs = {entry.name: entry.output or "" for entry in _read(file) if isinstance(entry, ToolEntry)}
    assert outputs["read_file"] == "x = 1\n"
    assert outputs["list_directory"].startswith("Directory listing")


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_a_subagent_follows_its_call(version: str) -> None:
    """The entries of a subagent follow its call, one level deeper, and occur once."""
    file, _ = recorded(version, "Ask an agent.")
    depths_and_kinds = [(entry.depth, _summarize(entry)) for entry in _read(file)]
    assert depths_and_kinds == [
        (0, "PromptEntry"),
        (0, ("invoke_agent", "ok", None)),
        (1, "PromptEntry"),
        (1, "ThoughtEntry"),
        (1, ("read_file", "ok", None)),
        (1, ("complete_task", "ok", None)),
        (1, "TurnEnd"),
        (0, "TextEntry"),
        (0, "TurnEnd"),
    ]


def test_a_subagent_without_a_call_is_kept(tmp_path: Path) -> None:
    """A subagent without a call is shown at the end."""
    main = tmp_path / "session-2026-01-01T00-00-aaaaaaaa.jsonl"
    main.write_text('{"sessionId":"s1","projectHash":"h"}\n{"id":"m","type":"user","content":"hi"}\n')
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "agent.jsonl").write_text(
        '{"sessionId":"agent","projectHash":"h"}\n{"id":"a","type":"user","content":"look"}\n'
    )
    transcript = _read(main)
    assert [(entry.depth, _summarize(entry)) for entry in transcript] == [
        (0, "PromptEntry"),
        (0, "RemarkEntry"),
        (1, "PromptEntry"),
    ]


def test_text_that_the_cli_inserts_is_no_prompt() -> None:
    """Context and tool results that the CLI stores as user messages are no prompts.

    Its info messages are remarks.
    """
    answer = {"functionResponse": {"id": "t1", "name": "glob", "response": {"output": "a"}}}
    call = {"id": "t1", "name": "glob", "status": "success", "result": [answer]}
    transcript = _entries_of(
        {"id": "c", "type": "user", "content": "<session_context>x</session_context>"},
        {"id": "g", "type": "gemini", "content": "", "toolCalls": [call]},
        {"id": "r", "type": "user", "content": [answer]},
        {"id": "i", "type": "info", "content": "Compressed."},
    )
    assert [type(entry) for entry in transcript] == [ToolEntry, RemarkEntry, TurnEnd]


def test_a_result_without_a_call_is_shown() -> None:
    """A result without a call is shown as a tool with the name from the result."""
    answer = {"functionResponse": {"id": "t1", "name": "glob", "response": {"output": "a"}}}
    transcript = _entries_of({"id": "r", "type": "user", "content": [answer]})
    assert [(tool.name, tool.output) for tool in transcript if isinstance(tool, ToolEntry)] == [("glob", "a")]


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
def test_status_of_a_call(status: str, result: Any, expected: str) -> None:
    """The status of a tool follows from the stored status and result.

    A call that has not ended is `unfinished`.
    """
    parts = [{"functionResponse": {"id": "t", "response": result}}] if result else None
    call = {"id": "t", "name": "run_shell_command", "status": status, "result": parts}
    (tool, _) = _entries_of({"id": "g", "type": "gemini", "toolCalls": [call]})
    assert isinstance(tool, ToolEntry)
    assert tool.status == expected


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recordings of 0.11 are not here")
def test_sessions_of_0_11() -> None:
    """All sessions of release 0.11 have prompts, and tools or texts."""
    for file in sorted((FIXTURES / "full").glob("*.json")):
        kinds = {type(entry) for entry in _read(file)}
        assert PromptEntry in kinds, file
        assert kinds & {ToolEntry, TextEntry}, file


def test_every_recording_can_be_read() -> None:
    """Every recorded file can be read, also the files of subagents."""
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
def test_no_message_raises(records: list[dict[str, Any]]) -> None:
    """No shape of a stored message raises an error."""
    _entries_of(*records)


def test_a_hostile_session_is_only_text() -> None:
    """A hostile session gives the usual entries, and its text adds none."""
    kinds = [type(entry).__name__ for entry in entries(hostile_session.messages())]
    assert kinds == [
        "PromptEntry",
        "ThoughtEntry",
        "TextEntry",
        "ToolEntry",
        "ToolEntry",
        "ToolEntry",
        "RemarkEntry",
        "TurnEnd",
    ]
