"""`replay` builds a conversation from records, by the rules of the CLI's own loader."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids.gemini.protocol.journal.replay import StoredConversation, replay
from geminids.gemini.protocol.journal.stream import open_journal
from recordings import FIXTURES, VERSIONS, recorded

HEADER: dict[str, Any] = {"sessionId": "s", "projectHash": "p", "startTime": "t"}


def message_record(number: int | str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "type": "user", "content": text or str(number), **fields}


def lines(*records: Any) -> list[bytes]:
    return [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]


def texts(*records: Any) -> list[str]:
    return [message.text for message in replay(lines(HEADER, *records)).messages]


def test_a_repeated_id_replaces_the_message() -> None:
    """A message that is written again replaces the first one at its place."""
    assert texts(message_record(1), message_record(2), message_record(1, "again")) == ["again", "2"]


def test_a_rewind_removes_a_message_and_all_that_follow() -> None:
    """A rewind removes a message and all that follow.

    Later messages are appended, also with an id that was removed.
    """
    assert texts(message_record(1), message_record(2), message_record(3), {"$rewindTo": "m2"}) == ["1"]
    assert texts(
        message_record(1), message_record(2), {"$rewindTo": "m1"}, message_record(2), message_record(1)
    ) == ["2", "1"]


def test_a_rewind_to_an_unknown_message_removes_all() -> None:
    """A rewind to an unknown message removes all messages, as in the CLI."""
    assert texts(message_record(1), message_record(2), {"$rewindTo": "m7"}, message_record(3)) == ["3"]


def test_a_checkpoint_replaces_the_conversation() -> None:
    """`$set.messages` replaces all messages, also with an empty list.

    Without a list it has no effect.
    """
    assert texts(
        message_record(1),
        {"$set": {"messages": [message_record(5), message_record(4)]}},
        message_record(4, "again"),
    ) == ["5", "again"]
    assert texts(message_record(1), {"$set": {"messages": []}}) == []
    assert texts(message_record(1), {"$set": {"messages": None}}, {"$set": []}) == ["1"]


def test_updates_are_merged_into_the_header() -> None:
    """Later headers and updates override fields of the header. Unknown fields are kept."""
    journal = replay(
        lines(
            HEADER,
            {"$set": {"summary": "about x", "lastUpdated": "u"}},
            {"sessionId": "s2", "projectHash": "p"},
            {"$set": {"new": 1, "kind": "main"}},
        )
    )
    assert journal.header is not None
    assert (journal.header.session_id, journal.header.start_time, journal.header.summary) == (
        "s2",
        "t",
        "about x",
    )
    assert (journal.header.last_updated, journal.header.kind, journal.header.fields["new"]) == (
        "u",
        "main",
        1,
    )
    assert replay(lines(HEADER, {"$set": {"sessionId": ""}})).header is None


def test_broken_lines_are_skipped() -> None:
    """Broken lines are skipped; the other lines count."""
    assert texts(
        message_record(1), b"{broken", b"", b"\x00", b'{"id":"m2","type":"us', message_record(3)
    ) == ["1", "3"]


def test_a_file_without_a_header() -> None:
    """One JSON object on several lines is a legacy conversation.

    Messages without a header are still returned.
    """
    whole = json.dumps(
        {**HEADER, "messages": [message_record(1), message_record(1, "twice"), {"type": "info"}]}, indent=2
    ).encode()
    journal = replay(whole.split(b"\n"))
    assert journal.header is not None
    # In a legacy list, messages need no id, and equal ids do not replace each other.
    assert [message.text for message in journal.messages] == ["1", "twice", ""]
    assert replay(lines(message_record(1))).header is None
    assert [message.text for message in replay(lines(message_record(1))).messages] == ["1"]
    assert replay(whole[:-9].split(b"\n")) == StoredConversation(None, [])
    assert replay([]) == StoredConversation(None, [])


def test_a_legacy_file_on_one_line() -> None:
    """A legacy file on one line is a header with messages. Later lines add to it."""
    assert texts(
        {**HEADER, "messages": [message_record(1), message_record(2)]},
        message_record(2, "again"),
        message_record(3),
    ) == ["1", "again", "3"]


@pytest.mark.parametrize("how", ["replace", "rewind", "rewind all", "checkpoint"])
def test_time_grows_with_the_file(how: str) -> None:
    """Ten times as many replacements, rewinds or checkpoints take less than 40 times as long."""
    make_records: Callable[[int], list[Any]] = {
        "replace": lambda n: [*map(message_record, range(n)), *map(message_record, range(n))],
        "rewind": lambda n: [
            *map(message_record, range(n)),
            *({"$rewindTo": f"m{i}"} for i in range(n - 1, -1, -1)),
        ],
        "rewind all": lambda n: [r for i in range(n) for r in (message_record(i), {"$rewindTo": "none"})],
        "checkpoint": lambda n: [
            r for i in range(n) for r in (message_record(i), {"$set": {"messages": [message_record(1)]}})
        ],
    }[how]
    small, large = lines(HEADER, *make_records(2_000)), lines(HEADER, *make_records(20_000))
    assert min(map(_seconds, [large] * 2)) < 40 * min(map(_seconds, [small] * 5))


def _seconds(journal_lines: list[bytes]) -> float:
    start = time.process_time()
    replay(journal_lines)
    return time.process_time() - start


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_session_that_was_resumed(version: str) -> None:
    """A recorded session that was resumed has the messages of both runs in order, in every file
    format.
    """
    _, journal = recorded(version, "What is x?")
    assert [message.text for message in journal.messages if message.is_prompt] == ["What is x?", "And now?"]
    assert [message.text for message in journal.messages if message.type == "gemini" and message.text] == [
        "Let me read.",
        "x is 1 — that's it.",
        "Still 1.",
    ]
    assert journal.header is not None
    assert journal.header.session_id


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the shared fixtures are not here")
def test_the_sessions_of_0_11_load() -> None:
    """Six sessions of release 0.11 load with the right number of messages."""
    counts = [
        len(replay(file.read_bytes().split(b"\n")).messages) for file in sorted(FIXTURES.glob("full/*"))
    ]
    assert counts == [18, 5, 3, 3, 2, 3]


@pytest.mark.parametrize("change", [False, True])
def test_a_checkpoint_of_known_messages_changes_nothing(change: bool) -> None:
    """A checkpoint that a resume writes, after it wrote the session id once more, has less detail
    than the lines before it. These stay. Without that id, the checkpoint is the conversation."""
    call = {"id": "c", "name": "read_file", "args": {}, "result": [], "status": "success"}
    earlier: list[dict[str, Any]] = [
        {"id": "m1", "type": "user", "content": "/help is what?"},
        {"id": "m2", "type": "gemini", "content": "Hm.", "model": "pro", "toolCalls": [call]},
    ]
    checkpoint: list[dict[str, Any]] = [
        {"id": "m2", "type": "gemini", "content": [{"text": "Hm."}]},
        {"id": "m2_response", "type": "user"},
    ]
    header: dict[str, Any] = {"sessionId": "s", "projectHash": "p"}
    resumed: dict[str, Any] = {"$set": {"sessionId": "s"}} if change else header
    lines: list[dict[str, Any]] = [
        header,
        *earlier,
        resumed,
        {"$set": {"messages": checkpoint}},
        {"id": "m3", "type": "user", "content": "next"},
    ]
    messages = replay(json.dumps(line).encode() for line in lines).messages
    assert [message.id for message in messages] == ["m1", "m2", "m3"]
    assert messages[1].model == "pro" and len(messages[1].tool_calls) == 1
    del lines[3]  # the second session id
    messages = replay(json.dumps(line).encode() for line in lines).messages
    assert [message.id for message in messages] == ["m2", "m2_response", "m3"]


def test_a_checkpoint_with_a_new_message_replaces_the_conversation() -> None:
    """A checkpoint with a message that the file does not have, such as a summary, is the conversation."""
    lines = [
        {"id": "m1", "type": "user", "content": "old"},
        {"$set": {"messages": [{"id": "s1", "type": "user", "content": "summary"}]}},
    ]
    messages = replay(json.dumps(line).encode() for line in lines).messages
    assert [message.id for message in messages] == ["s1"]


def test_a_later_checkpoint_of_a_resumed_session(tmp_path: Path) -> None:
    """After a resume, a checkpoint (which the CLI writes when a turn fails) keeps the details of the
    messages from before the resume, and the prompt that it omits. A turn that it leaves out is gone,
    and a copy with the message's own time replaces the message."""
    copies: list[dict[str, Any]] = [
        {"id": "m2", "type": "gemini", "timestamp": "late", "content": [{"text": "Hm."}]},
        {"id": "m2_response", "type": "user", "timestamp": "late"},
    ]
    lines: list[dict[str, Any]] = [
        {"sessionId": "s", "projectHash": "p"},
        {"id": "m1", "type": "user", "timestamp": "early", "content": "/help is what?"},
        {"id": "m2", "type": "gemini", "timestamp": "early", "content": "Hm.", "model": "pro"},
        {"sessionId": "s", "projectHash": "p"},
        {"$set": {"messages": copies}},
        {"id": "m3", "type": "user", "timestamp": "late", "content": "next"},
        {"$set": {"messages": copies}},
    ]
    assert _models(tmp_path, lines) == [("m1", None), ("m2", "pro")]
    lines[-1] = {"$set": {"messages": [{"id": "s1", "type": "user", "timestamp": "late"}]}}
    assert _models(tmp_path, lines) == [("s1", None)]
    lines[-1] = {
        "$set": {"messages": [{"id": "m2", "type": "gemini", "timestamp": "early", "model": "flash"}]}
    }
    assert _models(tmp_path, lines) == [("m2", "flash")]


def _models(tmp_path: Path, lines: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Return the id and the model of each message; both readers of session files must agree."""
    encoded = [json.dumps(line).encode() for line in lines]
    file = tmp_path / "session.jsonl"
    file.write_bytes(b"\n".join(encoded) + b"\n")
    models = [(message.id, message.model) for message in replay(encoded).messages]
    assert [(message.id, message.model) for message in open_journal(file).messages] == models
    return models
