"""`sessions.find` lists sessions from the beginning and the end of each file."""

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


def _find(session_files: Any, **kwargs: Any) -> list[SessionInfo]:
    return sessions.find(session_files.project, **session_files.where, **kwargs)


def _line(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _append(file: Path, *lines: bytes) -> None:
    with file.open("ab") as out:
        out.writelines(lines)


def test_every_generation_is_listed_newest_first(session_files: Any) -> None:
    """Session files of every format are listed, newest first.

    Each has project, times, title, number of messages, size and kind.
    """
    old = session_files.legacy(session_files.hashed(), A)
    mid = session_files.legacy(session_files.chats(), B, turns=2)
    new = session_files.journal(session_files.chats(), "cccccccc-1", turns=3)
    infos = _find(session_files)
    assert [(info.id, info.file, info.generation) for info in infos] == [
        ("cccccccc-1", str(new), "slug_journal"),
        (B, str(mid), "slug_json"),
        (A, str(old), "sha256_json"),
    ]
    first = infos[0]
    assert (first.project, first.title, first.messages) == (str(session_files.project), "prompt 0", 7)
    assert first.started == datetime(2026, 10, 4, 10, tzinfo=UTC)
    assert first.updated == datetime(2026, 10, 4, 10, 2, 1, tzinfo=UTC)
    assert (first.size, first.kind, first.resumable, first.damaged) == (
        new.stat().st_size,
        "main",
        True,
        False,
    )
    assert [info.messages for info in infos] == [7, 4, 2]
    assert _find(session_files, limit=2) == infos[:2]
    assert sessions.find(None, **session_files.where) == infos
    assert sessions.find("/elsewhere", **session_files.where) == []
    assert json.loads(__import__("msgspec").json.encode(infos))[0]["id"] == "cccccccc-1"


@pytest.mark.parametrize("kind", ["journal", "legacy"])
def test_a_big_file_is_read_in_part(session_files: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 64 KiB of a big file are read. What these bytes do not show is None."""
    file = getattr(session_files, kind)(session_files.chats(), A, turns=2000, words="." * 500)
    read: list[int] = []
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", pread)
    (info,) = _find(session_files)
    assert sum(read) <= 64 * 1024 < file.stat().st_size
    assert (info.id, info.resumable, info.messages) == (A, True, None)
    assert info.title is not None
    assert info.title.startswith("prompt 0...")
    assert len(info.title) == 200
    assert info.updated.minute == 1999 % 60


def test_the_title_is_the_summary_or_the_first_real_prompt(session_files: Any) -> None:
    """The title is the summary, or else the first prompt.

    Commands and text that the CLI inserted are skipped.
    """
    file = session_files.journal(session_files.chats(), A, turns=0)
    for number, text in enumerate(["/help", "?", "<hook_context>rain</hook_context>", "  "]):
        _append(file, _line(id=f"x{number}", type="user", content=text, timestamp=""))
    assert _find(session_files)[0].title is None
    assert _find(session_files)[0].resumable is False
    _append(
        file,
        _line(id="y", type="user", content="<hook_context>rain</hook_context>\n\nwhat  now?\n", timestamp=""),
    )
    assert _find(session_files)[0].title is None  # the CLI skips the whole message, also for --resume
    _append(file, _line(id="z", type="user", content="what\nnow?", timestamp=""))
    assert (_find(session_files)[0].title, _find(session_files)[0].resumable) == ("what now?", True)
    _append(file, _line(**{"$set": {"summary": "The weather"}}))
    assert _find(session_files)[0].title == "The weather"


def test_of_files_with_one_id_the_resumable_one_is_listed(session_files: Any) -> None:
    """Of several files with one id, `find` returns the file that the CLI would resume and names the
    others.
    """
    chats = session_files.chats()
    stub = session_files.journal(chats, A, turns=0)
    stub = stub.rename(chats / f"session-2026-10-20T10-00-{A[:8]}.jsonl")
    real = session_files.journal(chats, A, turns=2)
    (info,) = _find(session_files)
    assert (info.file, info.others, info.resumable) == (str(real), (str(stub),), True)
    assert sessions.journal_of(A, session_files.project, **session_files.where) == real
    later = session_files.journal(chats, A, turns=2).rename(chats / f"session-2026-10-21T10-00-{A[:8]}.jsonl")
    real = session_files.journal(chats, A, turns=1, hour=9)
    session_files.count -= 2
    (info,) = _find(session_files)
    assert info.file == str(
        max((later, real), key=lambda file: file.read_text().split('"lastUpdated":"')[-1])
    )


def test_a_copied_folder_is_listed_once(session_files: Any) -> None:
    """A session in an old and a new folder is listed once: the file changed last, or the newer one
    if both are equal.
    """
    old = session_files.legacy(session_files.hashed(), A)
    copy = session_files.chats() / old.name
    copy.write_bytes(old.read_bytes())
    (info,) = _find(session_files)
    assert info.file == str(copy)
    new = session_files.journal(session_files.hashed(), A)
    (info,) = _find(session_files)
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
def test_resumable_follows_the_rules_of_the_cli(
    session_files: Any, lines: list[bytes], resumable: bool, turns: int
) -> None:
    """`resumable` follows the rules of the CLI, also if the middle of the file is not read."""
    file = session_files.journal(session_files.chats(), A, turns=turns, words="." * 200)
    _append(file, *lines)
    info = _find(session_files, subagents=True)[0]
    # The unknown id may be in the part that is not read. Then the messages before it still count.
    is_unread = turns > 1 and b"nobody" in lines[0]
    assert info.resumable is (resumable or is_unread)
    assert sessions.exists(A, session_files.project, **session_files.where) is (info.resumable is not False)


def test_subagents_are_listed_on_request(session_files: Any) -> None:
    """Sessions of subagents are listed only with `subagents=True`."""
    chats = session_files.chats()
    session_files.journal(chats, A)
    below = chats / A / "sub-1.jsonl"
    below.parent.mkdir()
    header = {"sessionId": "sub-1", "projectHash": "x", "startTime": "", "kind": "subagent"}
    below.write_bytes(_line(**header) + _line(id="m", type="gemini", content="x", timestamp=""))
    _append(session_files.journal(chats, B), _line(**{"$set": {"kind": "subagent"}}))
    assert [info.id for info in _find(session_files)] == [A]
    assert {(info.id, info.kind, info.resumable) for info in _find(session_files, subagents=True)} == {
        (A, "main", True),
        (B, "subagent", False),
        ("sub-1", "subagent", False),
    }


def test_a_file_without_a_session_is_listed_as_damaged(session_files: Any) -> None:
    """A file without a header is listed as damaged, with the id from its name.

    Folders, FIFOs and other files are skipped.
    """
    file = session_files.journal(session_files.chats(), A)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    os.mkfifo(session_files.chats() / "session-2026-10-01T10-00-dddddddd.jsonl")
    (session_files.chats() / "session-2026-10-01T10-00-eeeeeeee.jsonl").mkdir()
    (session_files.chats() / "notes.jsonl").write_text("{}")
    (info,) = _find(session_files)
    assert (info.id, info.damaged, info.resumable, info.title) == (A[:8], True, False, "prompt 0")
    assert not sessions.exists(A, session_files.project, **session_files.where)


@pytest.mark.parametrize("bad", ["../x", "a/b", "a\0b", "", "x" * 10_000, "latest"])
def test_an_invalid_id_does_not_exist(session_files: Any, bad: str) -> None:
    """`exists` is false for a text that is not a session id."""
    session_files.journal(session_files.chats(), A)
    assert not sessions.exists(bad, session_files.project, **session_files.where)
