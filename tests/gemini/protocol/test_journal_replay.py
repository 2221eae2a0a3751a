"""Records to a conversation, by the rules of the CLI's own loader."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from geminids.gemini.protocol.journal.replay import Conversation, replay
from recordings import FIXTURES, VERSIONS, recorded

HEADER: dict[str, Any] = {"sessionId": "s", "projectHash": "p", "startTime": "t"}


def said(number: int | str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "type": "user", "content": text or str(number), **fields}


def lines(*records: Any) -> list[bytes]:
    return [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]


def texts(*records: Any) -> list[str]:
    return [message.text for message in replay(lines(HEADER, *records)).messages]


def test_the_same_id_replaces_and_keeps_its_place() -> None:
    """A message that is written again stays where it was."""
    assert texts(said(1), said(2), said(1, "again")) == ["again", "2"]


def test_a_rewind_takes_back_a_message_and_all_behind_it() -> None:
    """What comes later stands at the end, also with an id that was there before."""
    assert texts(said(1), said(2), said(3), {"$rewindTo": "m2"}) == ["1"]
    assert texts(said(1), said(2), {"$rewindTo": "m1"}, said(2), said(1)) == ["2", "1"]


def test_a_rewind_to_nothing_known_clears_all() -> None:
    """As the CLI does."""
    assert texts(said(1), said(2), {"$rewindTo": "m7"}, said(3)) == ["3"]


def test_a_checkpoint_is_the_conversation_from_there() -> None:
    """`$set.messages` drops what was; an empty one too. Without a list there is no checkpoint."""
    assert texts(said(1), {"$set": {"messages": [said(5), said(4)]}}, said(4, "again")) == ["5", "again"]
    assert texts(said(1), {"$set": {"messages": []}}) == []
    assert texts(said(1), {"$set": {"messages": None}}, {"$set": []}) == ["1"]


def test_updates_are_merged_into_the_header() -> None:
    """Later lines win field by field; a second header too; fields that we do not know are kept."""
    told = replay(
        lines(
            HEADER,
            {"$set": {"summary": "about x", "lastUpdated": "u"}},
            {"sessionId": "s2", "projectHash": "p"},
            {"$set": {"new": 1, "kind": "main"}},
        )
    )
    assert told.header is not None
    assert (told.header.session_id, told.header.start_time, told.header.summary) == ("s2", "t", "about x")
    assert (told.header.last_updated, told.header.kind, told.header.fields["new"]) == ("u", "main", 1)
    assert replay(lines(HEADER, {"$set": {"sessionId": ""}})).header is None


def test_lines_that_are_none_are_passed_over() -> None:
    """A broken line costs itself alone."""
    assert texts(said(1), b"{broken", b"", b"\x00", b'{"id":"m2","type":"us', said(3)) == ["1", "3"]


def test_a_file_without_a_header_is_legacy_or_none() -> None:
    """One JSON object over many lines is a whole conversation; messages without a header are still given."""
    whole = json.dumps(
        {**HEADER, "messages": [said(1), said(1, "twice"), {"type": "info"}]}, indent=2
    ).encode()
    told = replay(whole.split(b"\n"))
    assert told.header is not None
    # A list of messages is as it stands: no id replaces another one, and none is needed.
    assert [message.text for message in told.messages] == ["1", "twice", ""]
    assert replay(lines(said(1))).header is None
    assert [message.text for message in replay(lines(said(1))).messages] == ["1"]
    assert replay(whole[:-9].split(b"\n")) == Conversation(None, [])
    assert replay([]) == Conversation(None, [])


def test_a_legacy_file_on_one_line() -> None:
    """It is a header with its messages, which later lines add to."""
    assert texts({**HEADER, "messages": [said(1), said(2)]}, said(2, "again"), said(3)) == ["1", "again", "3"]


@pytest.mark.parametrize("how", ["replace", "rewind", "rewind all", "checkpoint"])
def test_time_grows_with_the_file(how: str) -> None:
    """20,000 replacements, rewinds or checkpoints take no hundred times what 2,000 take."""
    many: Callable[[int], list[Any]] = {
        "replace": lambda n: [*map(said, range(n)), *map(said, range(n))],
        "rewind": lambda n: [*map(said, range(n)), *({"$rewindTo": f"m{i}"} for i in range(n - 1, -1, -1))],
        "rewind all": lambda n: [r for i in range(n) for r in (said(i), {"$rewindTo": "none"})],
        "checkpoint": lambda n: [r for i in range(n) for r in (said(i), {"$set": {"messages": [said(1)]}})],
    }[how]
    small, large = lines(HEADER, *many(2_000)), lines(HEADER, *many(20_000))
    assert min(map(_seconds, [large] * 2)) < 40 * min(map(_seconds, [small] * 5))


def _seconds(made: list[bytes]) -> float:
    start = time.process_time()
    replay(made)
    return time.process_time() - start


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_session_that_was_resumed(version: str) -> None:
    """What both runs said, in its order, from every generation of files."""
    _, told = recorded(version, "What is x?")
    assert [message.text for message in told.messages if message.is_prompt] == ["What is x?", "And now?"]
    assert [message.text for message in told.messages if message.type == "gemini" and message.text] == [
        "Let me read.",
        "x is 1 — that's it.",
        "Still 1.",
    ]
    assert told.header is not None
    assert told.header.session_id


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the shared fixtures are not here")
def test_the_sessions_of_0_11_load() -> None:
    """Six whole sessions, with the messages that are in them."""
    counts = [
        len(replay(file.read_bytes().split(b"\n")).messages) for file in sorted(FIXTURES.glob("full/*"))
    ]
    assert counts == [18, 5, 3, 3, 2, 3]
