"""`in_true_order` puts the messages of a session from ACP into the order in which they happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.cli.sessions.export import export_session
from geminids.cli.sessions.lookup import OpenSession
from geminids.dialects import claude
from geminids.gemini.protocol.journal.records import StoredMessage, decode_message
from geminids.gemini.protocol.journal.replay import replay
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.loader import locate
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.transcript import PromptEntry, TextEntry, ToolEntry, TranscriptEntry, entries
from recordings import all_files, recorded

_ALL_ENTRIES = [
    "> Look around.",
    "Let me see.",
    "read_file ok",
    "run_shell_command ok",
    "Try.",
    "write_file denied",
    "nonesuch failed",
    "Done.",
    "> Rest.",
    "Sleep.",
    "run_shell_command cancelled",
    "> Again.",
    "Once more.",
    "read_file ok",
    "read_file ok",
    "Third.",
]
# Release 0.41.2 does not store denied and unknown calls.
_ENTRIES_OF_0_41 = [entry for entry in _ALL_ENTRIES if not entry.startswith(("write_file", "nonesuch"))]


def _summarize(transcript: list[TranscriptEntry]) -> list[str]:
    lines = []
    for entry in transcript:
        if isinstance(entry, PromptEntry):
            lines.append(f"> {entry.text}")
        elif isinstance(entry, TextEntry):
            lines.append(entry.text)
        elif isinstance(entry, ToolEntry):
            lines.append(f"{entry.name} {entry.status}")
    return lines


def _transcript_of(version: str, prompt: str) -> list[str]:
    return _summarize(list(entries(recorded(version, prompt)[1].messages)))


@pytest.mark.parametrize(("version", "expected"), [("0.61.0", _ALL_ENTRIES), ("0.41.2", _ENTRIES_OF_0_41)])
def test_each_call_follows_its_answer(version: str, expected: list[str]) -> None:
    """Each tool call follows the answer that made it, also a denied, an unknown and a cancelled
    call.
    """
    assert _transcript_of(version, "Look around.") == expected


def test_a_denied_call_has_its_error() -> None:
    """A denied or failed call has its error text; its input is not known."""
    transcript = entries(recorded("0.61.0", "Look around.")[1].messages)
    refused = [
        call for call in transcript if isinstance(call, ToolEntry) and call.status in ("denied", "failed")
    ]
    assert [(call.error, call.input) for call in refused] == [
        ('Tool "write_file" was canceled by the user.', {}),
        ('Tool "nonesuch" not found in registry.', {}),
    ]


def test_a_conversation_rewritten_after_an_error() -> None:
    """After an API error the CLI stores the earlier calls a second time. They are listed once."""
    expected = ["One.", "read_file ok", "Two.", "> Go on.", "Three.", "read_file ok", "Four."]
    assert _transcript_of("0.61.0", "Read, then fail.") == ["> Read, then fail.", *expected]


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_a_conversation_continued_headless(version: str) -> None:
    """The CLI stores results twice when a session continues headless.

    Each call is listed once, at its place.
    """
    first = ["> Read, then resume.", "One.", "read_file ok", "Two.", "> And list.", "Three."]
    then = ["list_directory ok", "Four.", "> Headless.", "Five.", "> Later.", "Six."]
    assert _transcript_of(version, "Read, then resume.") == [*first, *then]


@pytest.mark.parametrize("form", ["claude", "claude-jsonl", "atif", "json", "markdown", "html"])
def test_exports_are_in_order(form: str) -> None:
    """Every export format has the prompts, texts and calls in the order in which they happened."""
    file, _ = recorded("0.61.0", "Look around.")
    journal = open_journal(file)
    text = b"".join(export_session(OpenSession(locate(file), journal), form)).decode()
    words = ["Look around.", "Let me see.", "touch b", "Try.", "nonesuch", "Done.", "Rest.", "Sleep."]
    words += ["touch started", "Again.", "Once more.", "Third."]
    if form in ("claude", "claude-jsonl", "json"):
        # In these formats the calls of a message may come before its text.
        words = [word for word in words if word not in ("touch b", "nonesuch", "touch started")]
    positions = [text.index(word) for word in words]
    assert positions == sorted(positions)


def test_claude_messages() -> None:
    """Each result is in the same Claude message as its call, also that of a denied call, and none
    occurs twice.
    """
    _, journal = recorded("0.61.0", "Look around.")
    contents = [
        [getattr(block, "name", type(block).__name__) for block in message.content]
        for message in claude.messages(journal)
        if message.role == "assistant"
    ]
    assert contents == [
        ["Thinking", "Read", "ToolResult", "Bash", "ToolResult", "Text"],
        ["Write", "ToolResult", "nonesuch", "ToolResult", "Text"],
        ["Text"],
        ["Bash", "ToolResult", "Text"],
        ["Read", "ToolResult", "Text"],
        ["Read", "ToolResult"],
        ["Text"],
    ]


def test_the_exported_json_is_in_order() -> None:
    """The exported JSON is in the right order and has each stored call with all its fields."""
    file, journal = recorded("0.61.0", "Look around.")
    exported = json.loads(b"".join(export_session(OpenSession(locate(file), open_journal(file)), "json")))
    again = replay([json.dumps(exported).encode()])
    assert list(in_true_order(again.messages)) == again.messages
    calls = [call for message in exported["messages"] for call in message.get("toolCalls", [])]
    stored = [call for message in journal.messages for call in message.original.get("toolCalls", [])]
    assert [call for call in calls if "displayName" in call] == stored


def test_other_sessions_are_unchanged() -> None:
    """For a session that was not made on ACP, the same message objects are returned in the same
    order.
    """
    for file in all_files():
        messages = replay(file.read_bytes().split(b"\n")).messages
        if "acp" not in file.parts and not any(message.text == "Sleep." for message in messages):
            assert [*map(id, in_true_order(messages))] == [*map(id, messages)], file


def _messages(*records: dict[str, Any]) -> list[StoredMessage]:
    decoded = [decode_message(json.dumps(record).encode()) for record in records]
    return [message for message in decoded if message is not None]


def _call(name: str, at: str) -> dict[str, Any]:
    answer = {"functionResponse": {"id": name, "name": name, "response": {"output": "x"}}}
    return {"id": name, "name": name, "status": "success", "timestamp": at, "result": [answer]}


def test_a_call_of_a_rewound_turn_is_kept() -> None:
    """A call whose turn was rewound is kept in a message of its own, before the next answer."""
    answer = {"id": "g", "type": "gemini", "timestamp": "T5", "content": "now"}
    calls = [_call("old", "T2"), _call("new", "T6")]
    gathered = {"id": "m", "type": "gemini", "timestamp": "T2", "content": "", "toolCalls": calls}
    results = {"id": "r", "type": "user", "timestamp": "T7", "content": calls[1]["result"]}
    ordered = list(in_true_order(_messages(answer, gathered, results)))
    assert [(message.id, [call.id for call in message.tool_calls]) for message in ordered] == [
        ("m", ["old"]),
        ("g", ["new"]),
        ("r", []),
    ]


def test_a_call_without_time_and_result_comes_last() -> None:
    """A call without a time and without a result comes last."""
    parts: list[Any] = [{"functionCall": {"id": name, "name": name, "args": {}}} for name in ("a", "b")]
    answer = {"id": "g", "type": "gemini", "content": "now"}
    gathered = {"id": "m", "type": "gemini", "content": parts}
    results = {"id": "r", "type": "user", "content": _call("a", "")["result"]}
    prompt = {"id": "p", "type": "user", "content": "next"}
    ordered = list(in_true_order(_messages(answer, gathered, results, prompt)))
    assert [(message.id, [call.id for call in message.tool_calls]) for message in ordered] == [
        ("g", ["a"]),
        ("r", []),
        ("p", []),
        ("m", ["b"]),
    ]
