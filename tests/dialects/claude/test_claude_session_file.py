"""Write sessions as Claude Code's transcript files, checked by the rules of their readers."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from geminids.dialects.claude.session_file import transcript
from geminids.gemini.protocol.journal.records import decode_record
from geminids.gemini.protocol.journal.replay import StoredConversation, replay
from geminids.gemini.protocol.journal.stream import open_journal
from recordings import VERSIONS, all_files, recorded

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def check_entries(lines: list[bytes]) -> list[dict[str, Any]]:
    """Check the lines against the rules of the format, and return the conversation's entries."""
    records = [json.loads(line) for line in lines]
    entries = [entry for entry in records if entry["type"] in ("user", "assistant", "system")]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert [entry["parentUuid"] for entry in entries] == [None, *(entry["uuid"] for entry in entries[:-1])][
        : len(entries)
    ]
    assert all(_UUID.fullmatch(entry["uuid"]) and _TIME.fullmatch(entry["timestamp"]) for entry in entries)
    assert len({entry["uuid"] for entry in entries}) == len(entries)
    assert len({entry["sessionId"] for entry in records}) <= 1
    assert not any(entry["isSidechain"] for entry in entries)
    times = [entry["timestamp"] for entry in entries]
    assert times == sorted(times)
    open_call = None
    for entry in entries:
        if entry["type"] == "system":
            continue
        content = entry["message"]["content"]
        blocks = content if isinstance(content, list) else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        # The entry after a call has its result, and there is no result without a call.
        assert results == ([open_call] if open_call else [])
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(calls) <= 1
        open_call = calls[0] if calls else None
        if entry["type"] == "assistant":
            message = entry["message"]
            assert (message["type"], message["role"], bool(message["model"])) == (
                "message",
                "assistant",
                True,
            )
            assert message["stop_reason"] == ("tool_use" if calls else "end_turn")
            assert blocks
            assert all(block["signature"] == "" for block in blocks if block["type"] == "thinking")
    assert open_call is None
    return entries


def session(*messages: dict[str, Any], **header: Any) -> StoredConversation:
    head = {"sessionId": "5f0c0f5e-0000-4000-8000-000000000001", "projectHash": "p", **header}
    return replay([json.dumps(record).encode() for record in (head, *messages)])


def test_every_recording_becomes_a_valid_transcript() -> None:
    """Every recorded session gives a valid transcript, from a loaded conversation and from a
    streamed journal."""
    for file in all_files():
        conversation = replay(file.read_bytes().split(b"\n"))
        entries = check_entries(list(transcript(conversation)))
        assert len(check_entries(list(transcript(open_journal(file))))) == len(entries), file


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_session(version: str) -> None:
    """The transcript has prompts, texts and calls in their order, with the session's id, folder and
    branch."""
    _, conversation = recorded(version, "What is x?")
    assert conversation.header is not None
    entries = check_entries(list(transcript(conversation, cwd="/repo", git_branch="main")))
    contents = [entry["message"]["content"] for entry in entries if entry["type"] == "user"]
    assert [text for text in contents if isinstance(text, str)] == ["What is x?", "And now?"]
    first = entries[1]["message"]["content"]
    assert [block["type"] for block in first[:2]] == ["thinking", "text"]
    assert first[2]["name"] == "Read"
    assert {(entry["sessionId"], entry["cwd"], entry["gitBranch"]) for entry in entries} == {
        (conversation.header.session_id, "/repo", "main")
    }


def test_tokens_are_counted_once() -> None:
    """The tokens of a message that becomes several entries are counted once. Input is without
    cached tokens, and output includes thinking."""
    calls = [
        {"id": f"t{n}", "name": "glob", "args": {}, "result": "x", "status": "success"} for n in range(3)
    ]
    tokens = {"input": 100, "output": 7, "cached": 40, "thoughts": 5, "tool": 0, "total": 112}
    conversation = session(
        {"id": "m", "type": "gemini", "content": "x", "toolCalls": calls, "tokens": tokens}
    )
    answers = [
        entry for entry in check_entries(list(transcript(conversation))) if entry["type"] == "assistant"
    ]
    usage = [entry["message"]["usage"] for entry in answers]
    assert [sum(one[name] for one in usage) for name in usage[0]] == [60, 12, 0, 40]
    assert len({entry["message"]["id"] for entry in answers}) == len(answers) == 3


def test_a_call_without_a_result_is_answered() -> None:
    """A call without a result gets an error result, because APIs refuse a conversation with an
    unanswered call."""
    conversation = session(
        {"id": "m", "type": "gemini", "content": "", "toolCalls": [{"id": "t", "name": "glob"}]}
    )
    _, answer = check_entries(list(transcript(conversation)))
    assert answer["message"]["content"][0]["is_error"] is True


def test_context_errors_and_notes() -> None:
    """Context and empty messages are left out. Errors become marked entries of the assistant, and
    notes become entries of the system."""
    conversation = session(
        {"id": "a", "type": "user", "content": "<session_context>"},
        {"id": "b", "type": "user", "content": ""},
        {"id": "c", "type": "gemini", "content": ""},
        {"id": "d", "type": "error", "content": "[API Error]"},
        {"id": "e", "type": "warning", "content": "careful"},
        {"id": "f", "type": "info", "content": ""},
    )
    error, note = check_entries(list(transcript(conversation)))
    assert (error["message"]["model"], error["isApiErrorMessage"]) == ("<synthetic>", True)
    assert (note["type"], note["level"], note["content"]) == ("system", "warning", "careful")


def test_ids_and_titles() -> None:
    """A summary becomes the title, and a session id that is no UUID is replaced by a UUID."""
    conversation = session({"id": "a", "type": "user", "content": "hi"}, sessionId="mine", summary="About x")
    entry, title = (json.loads(line) for line in transcript(conversation))
    assert _UUID.fullmatch(entry["sessionId"])
    assert title == {"type": "custom-title", "customTitle": "About x", "sessionId": entry["sessionId"]}
    assert list(transcript(StoredConversation(None, []))) == []


def test_the_caller_can_give_the_ids() -> None:
    """The caller can set the ids, so that a session always gives the same bytes."""
    conversation = session(
        {"id": "a", "type": "user", "content": "hi", "timestamp": "2026-01-01T00:00:00.000Z"}
    )
    fixed = uuid.UUID("5f0c0f5e-0000-4000-8000-00000000000a")
    (line,) = transcript(conversation, new_id=lambda: fixed)
    assert json.loads(line)["uuid"] == str(fixed)
    assert decode_record(line) is None
