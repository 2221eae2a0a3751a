"""What is found, from the beginning and the end of each file."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.sessions.finder import SessionInfo

A = "aaaaaaaa-7033-438d-a978-a361d8031f47"
B = "bbbbbbbb-7033-438d-a978-a361d8031f47"


def _find(shelf: Any, **how: Any) -> list[SessionInfo]:
    return sessions.find(shelf.project, **shelf.where, **how)


def _line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _append(file: Path, *lines: bytes) -> None:
    with file.open("ab") as out:
        out.writelines(lines)


def test_every_generation_is_listed_newest_first(shelf: Any) -> None:
    """With id, file, project, times, title, number of messages, size and kind."""
    old = shelf.legacy(shelf.hashed(), A)
    mid = shelf.legacy(shelf.chats(), B, turns=2)
    new = shelf.journal(shelf.chats(), "cccccccc-1", turns=3)
    found = _find(shelf)
    assert [(info.id, info.file, info.generation) for info in found] == [
        ("cccccccc-1", str(new), "slug_journal"),
        (B, str(mid), "slug_json"),
        (A, str(old), "sha256_json"),
    ]
    first = found[0]
    assert (first.project, first.title, first.messages) == (str(shelf.project), "prompt 0", 7)
    assert first.started == datetime(2026, 10, 4, 10, tzinfo=UTC)
    assert first.updated == datetime(2026, 10, 4, 10, 2, 1, tzinfo=UTC)
    assert (first.size, first.kind, first.resumable, first.damaged) == (
        new.stat().st_size,
        "main",
        True,
        False,
    )
    assert [info.messages for info in found] == [7, 4, 2]
    assert _find(shelf, limit=2) == found[:2]
    assert sessions.find(None, **shelf.where) == found
    assert sessions.find("/elsewhere", **shelf.where) == []
    assert json.loads(__import__("msgspec").json.encode(found))[0]["id"] == "cccccccc-1"


@pytest.mark.parametrize("kind", ["journal", "legacy"])
def test_of_a_big_file_little_is_read(shelf: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 64 KiB; what is not seen is None, what is seen is right."""
    file = getattr(shelf, kind)(shelf.chats(), A, turns=2000, words="." * 500)
    read: list[int] = []
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    (info,) = _find(shelf)
    assert sum(read) <= 64 * 1024 < file.stat().st_size
    assert (info.id, info.resumable, info.messages) == (A, True, None)
    assert info.title is not None
    assert info.title.startswith("prompt 0...")
    assert len(info.title) == 200
    assert info.updated.minute == 1999 % 60


def test_the_title_is_the_summary_or_the_first_real_prompt(shelf: Any) -> None:
    """What the CLI has put in the user's name is skipped, and so is a command."""
    file = shelf.journal(shelf.chats(), A, turns=0)
    for number, text in enumerate(["/help", "?", "<hook_context>rain</hook_context>", "  "]):
        _append(file, _line(id=f"x{number}", type="user", content=text, timestamp=""))
    assert _find(shelf)[0].title is None
    assert _find(shelf)[0].resumable is False
    _append(
        file,
        _line(id="y", type="user", content="<hook_context>rain</hook_context>\n\nwhat  now?\n", timestamp=""),
    )
    assert _find(shelf)[0].title is None  # the CLI passes over the whole message: so does its --resume
    _append(file, _line(id="z", type="user", content="what\nnow?", timestamp=""))
    assert (_find(shelf)[0].title, _find(shelf)[0].resumable) == ("what now?", True)
    _append(file, _line(**{"$set": {"summary": "The weather"}}))
    assert _find(shelf)[0].title == "The weather"


def test_of_files_with_one_id_the_one_counts_that_the_cli_takes(shelf: Any) -> None:
    """Not the stub that it leaves when it resumes; the others are named."""
    chats = shelf.chats()
    stub = shelf.journal(chats, A, turns=0)
    stub = stub.rename(chats / f"session-2026-10-20T10-00-{A[:8]}.jsonl")
    real = shelf.journal(chats, A, turns=2)
    (info,) = _find(shelf)
    assert (info.file, info.others, info.resumable) == (str(real), (str(stub),), True)
    assert sessions.journal_of(A, shelf.project, **shelf.where) == real
    later = shelf.journal(chats, A, turns=2).rename(chats / f"session-2026-10-21T10-00-{A[:8]}.jsonl")
    real = shelf.journal(chats, A, turns=1, hour=9)
    shelf.count -= 2
    (info,) = _find(shelf)
    assert info.file == str(
        max((later, real), key=lambda file: file.read_text().split('"lastUpdated":"')[-1])
    )


def test_a_folder_that_was_copied_by_a_newer_release_counts_once(shelf: Any) -> None:
    """The one that was changed last; the newer one where both are the same."""
    old = shelf.legacy(shelf.hashed(), A)
    copy = shelf.chats() / old.name
    copy.write_bytes(old.read_bytes())
    (info,) = _find(shelf)
    assert info.file == str(copy)
    new = shelf.journal(shelf.hashed(), A)
    (info,) = _find(shelf)
    assert info.file == str(new)


@pytest.mark.parametrize(
    ("lines", "resumable"),
    [
        ([_line(**{"$set": {"messages": []}})], False),
        ([_line(**{"$rewindTo": "u0"})], False),
        ([_line(**{"$rewindTo": "g0"})], True),
        ([_line(**{"$rewindTo": "nobody"})], False),
        (
            [_line(**{"$set": {"messages": []}}), _line(id="n", type="gemini", content="x", timestamp="")],
            True,
        ),
        ([_line(**{"$set": {"kind": "subagent"}})], False),
    ],
)
@pytest.mark.parametrize("turns", [1, 1000])
def test_whether_the_cli_would_resume_it(shelf: Any, lines: list[bytes], resumable: bool, turns: int) -> None:
    """As its own rules say, also where the middle of the file is not seen."""
    file = shelf.journal(shelf.chats(), A, turns=turns, words="." * 200)
    _append(file, *lines)
    found = _find(shelf, subagents=True)[0]
    # An id that is not seen may stand in the middle: then what was before it is still there.
    unseen = turns > 1 and b"nobody" in lines[0]
    assert found.resumable is (resumable or unseen)
    assert sessions.exists(A, shelf.project, **shelf.where) is (found.resumable is not False)


def test_subagents_are_listed_where_they_are_asked_for(shelf: Any) -> None:
    """Their files lie below the session's, or among the others with their kind."""
    chats = shelf.chats()
    shelf.journal(chats, A)
    below = chats / A / "sub-1.jsonl"
    below.parent.mkdir()
    header = {"sessionId": "sub-1", "projectHash": "x", "startTime": "", "kind": "subagent"}
    below.write_bytes(_line(**header) + _line(id="m", type="gemini", content="x", timestamp=""))
    _append(shelf.journal(chats, B), _line(**{"$set": {"kind": "subagent"}}))
    assert [info.id for info in _find(shelf)] == [A]
    assert {(info.id, info.kind, info.resumable) for info in _find(shelf, subagents=True)} == {
        (A, "main", True),
        (B, "subagent", False),
        ("sub-1", "subagent", False),
    }


def test_a_file_without_a_session_is_listed_as_damaged(shelf: Any) -> None:
    """With what its name says; what is no file, or none of ours to read, is passed over."""
    file = shelf.journal(shelf.chats(), A)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    os.mkfifo(shelf.chats() / "session-2026-10-01T10-00-dddddddd.jsonl")
    (shelf.chats() / "session-2026-10-01T10-00-eeeeeeee.jsonl").mkdir()
    (shelf.chats() / "notes.jsonl").write_text("{}")
    (info,) = _find(shelf)
    assert (info.id, info.damaged, info.resumable, info.title) == (A[:8], True, False, "prompt 0")
    assert not sessions.exists(A, shelf.project, **shelf.where)


@pytest.mark.parametrize("bad", ["../x", "a/b", "a\0b", "", "x" * 10_000, "latest"])
def test_what_is_no_id_does_not_exist(shelf: Any, bad: str) -> None:
    """No path is made of it."""
    shelf.journal(shelf.chats(), A)
    assert not sessions.exists(bad, shelf.project, **shelf.where)
