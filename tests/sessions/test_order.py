"""Sessions that were made on ACP, in their true order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.cli.sessions.export import export_session
from geminids.cli.sessions.lookup import Opened
from geminids.dialects import claude
from geminids.gemini.protocol.journal.records import Message, decode_message
from geminids.gemini.protocol.journal.replay import replay
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.loader import locate
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.transcript import AgentText, Entry, Prompt, Tool, entries
from recordings import all_files, recorded

_ALL_OF_IT = [
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
# That release keeps nothing at all of calls that came to nothing.
_OLDER = [one for one in _ALL_OF_IT if not one.startswith(("write_file", "nonesuch"))]


def _brief(shown: list[Entry]) -> list[str]:
    told = []
    for entry in shown:
        if isinstance(entry, Prompt):
            told.append(f"> {entry.text}")
        elif isinstance(entry, AgentText):
            told.append(entry.text)
        elif isinstance(entry, Tool):
            told.append(f"{entry.name} {entry.status}")
    return told


def _shown(version: str, prompt: str) -> list[str]:
    return _brief(list(entries(recorded(version, prompt)[1].messages)))


@pytest.mark.parametrize(("version", "expected"), [("0.61.0", _ALL_OF_IT), ("0.41.2", _OLDER)])
def test_each_call_stands_with_the_answer_that_made_it(version: str, expected: list[str]) -> None:
    """Also the refused one, the unknown one and the cancelled one."""
    assert _shown(version, "Look around.") == expected


def test_a_refused_call_says_why() -> None:
    """By the words that the model was told; its input is not known."""
    shown = entries(recorded("0.61.0", "Look around.")[1].messages)
    refused = [one for one in shown if isinstance(one, Tool) and one.status in ("denied", "failed")]
    assert [(one.error, one.input) for one in refused] == [
        ('Tool "write_file" was canceled by the user.', {}),
        ('Tool "nonesuch" not found in registry.', {}),
    ]


def test_a_conversation_that_was_written_anew_after_an_error() -> None:
    """The calls of before stand among its parts, and again in the message that has them all: they are told once."""
    expected = ["One.", "read_file ok", "Two.", "> Go on.", "Three.", "read_file ok", "Four."]
    assert _shown("0.61.0", "Read, then fail.") == ["> Read, then fail.", *expected]


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_a_conversation_that_went_on_headless(version: str) -> None:
    """Then the CLI has written all results at once, behind the first call, and again at their places."""
    first = ["> Read, then resume.", "One.", "read_file ok", "Two.", "> And list.", "Three."]
    then = ["list_directory ok", "Four.", "> Headless.", "Five.", "> Later.", "Six."]
    assert _shown(version, "Read, then resume.") == [*first, *then]


@pytest.mark.parametrize("form", ["claude", "claude-jsonl", "atif", "json", "markdown", "html"])
def test_every_export_has_that_order(form: str) -> None:
    """Each call behind the words that came with it."""
    file, _ = recorded("0.61.0", "Look around.")
    journal = open_journal(file)
    text = b"".join(export_session(Opened(locate(file), journal), form)).decode()
    words = ["Look around.", "Let me see.", "touch b", "Try.", "nonesuch", "Done.", "Rest.", "Sleep."]
    words += ["touch started", "Again.", "Once more.", "Third."]
    if form in ("claude", "claude-jsonl", "json"):
        # There the calls of a message may stand before its text.
        words = [one for one in words if one not in ("touch b", "nonesuch", "touch started")]
    places = [text.index(one) for one in words]
    assert places == sorted(places)


def test_claude_messages() -> None:
    """Each result has its call in the same message, the refused one too, and none stands twice."""
    _, told = recorded("0.61.0", "Look around.")
    found = [
        [getattr(block, "name", type(block).__name__) for block in one.content]
        for one in claude.messages(told)
        if one.role == "assistant"
    ]
    assert found == [
        ["Thinking", "Read", "ToolResult", "Bash", "ToolResult", "Text"],
        ["Write", "ToolResult", "nonesuch", "ToolResult", "Text"],
        ["Text"],
        ["Bash", "ToolResult", "Text"],
        ["Read", "ToolResult", "Text"],
        ["Read", "ToolResult"],
        ["Text"],
    ]


def test_the_json_that_is_exported_is_in_order_already() -> None:
    """It is a session in the form of older releases, with each call in its answer and with all its fields."""
    file, told = recorded("0.61.0", "Look around.")
    whole = json.loads(b"".join(export_session(Opened(locate(file), open_journal(file)), "json")))
    again = replay([json.dumps(whole).encode()])
    assert list(in_true_order(again.messages)) == again.messages
    calls = [call for one in whole["messages"] for call in one.get("toolCalls", [])]
    stored = [call for one in told.messages for call in one.original.get("toolCalls", [])]
    assert [call for call in calls if "displayName" in call] == stored


def test_other_sessions_are_left_as_they_are() -> None:
    """The very same messages."""
    for file in all_files():
        told = replay(file.read_bytes().split(b"\n")).messages
        if "acp" not in file.parts and not any(one.text == "Sleep." for one in told):
            assert [*map(id, in_true_order(told))] == [*map(id, told)], file


def _messages(*records: dict[str, Any]) -> list[Message]:
    found = [decode_message(json.dumps(record).encode()) for record in records]
    return [one for one in found if one is not None]


def _call(name: str, at: str) -> dict[str, Any]:
    answer = {"functionResponse": {"id": name, "name": name, "response": {"output": "x"}}}
    return {"id": name, "name": name, "status": "success", "timestamp": at, "result": [answer]}


def test_a_call_whose_turn_was_taken_back_is_not_lost() -> None:
    """It did happen: it stands before the answer that comes next, and not in it."""
    answer = {"id": "g", "type": "gemini", "timestamp": "T5", "content": "now"}
    calls = [_call("old", "T2"), _call("new", "T6")]
    gathered = {"id": "m", "type": "gemini", "timestamp": "T2", "content": "", "toolCalls": calls}
    results = {"id": "r", "type": "user", "timestamp": "T7", "content": calls[1]["result"]}
    found = list(in_true_order(_messages(answer, gathered, results)))
    assert [(one.id, [call.id for call in one.tool_calls]) for one in found] == [
        ("m", ["old"]),
        ("g", ["new"]),
        ("r", []),
    ]


def test_a_call_that_no_time_and_no_result_places_comes_last() -> None:
    """Rather there than nowhere."""
    parts: list[Any] = [{"functionCall": {"id": name, "name": name, "args": {}}} for name in ("a", "b")]
    answer = {"id": "g", "type": "gemini", "content": "now"}
    gathered = {"id": "m", "type": "gemini", "content": parts}
    results = {"id": "r", "type": "user", "content": _call("a", "")["result"]}
    prompt = {"id": "p", "type": "user", "content": "next"}
    found = list(in_true_order(_messages(answer, gathered, results, prompt)))
    assert [(one.id, [call.id for call in one.tool_calls]) for one in found] == [
        ("g", ["a"]),
        ("r", []),
        ("p", []),
        ("m", ["b"]),
    ]
