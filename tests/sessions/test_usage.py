"""The requests in stored sessions, and their tokens."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from geminids.sessions import fork, rescue
from geminids.sessions.folders import Folder
from geminids.sessions.usage import RequestTokens, StoredRequest, StoredUsage, read_usage, stored_usage
from recordings import RECORDINGS

PLAIN_SESSION = RECORDINGS / "0.61.0" / "session-2026-11-16T07-24-2442f7e8.jsonl"
# The tokens of each recorded request: the scripted model always reports the same.
EACH = RequestTokens(100, 7, 40, 5, 0, 112)
ID = "4294f67c-cac7-469d-a089-aae52457a53{}"


def answer(number: int = 0, **other: Any) -> dict[str, Any]:
    """A message of the model, as release 0.61.0 writes it."""
    tokens = {"input": 10 + number, "output": 2, "cached": 3, "thoughts": 4, "tool": 0, "total": 16 + number}
    return {
        "id": ID.format(number),
        "timestamp": f"2026-11-16T07:24:4{number}.599Z",
        "type": "gemini",
        "content": "Done.",
        "thoughts": [],
        "tokens": tokens,
        "model": "gemini-2.5-pro",
        **other,
    }


def journal(folder: Path, *records: Any, session: str = "5f0c0f5e-0000-4000-8000-000000000001") -> Path:
    """Write a `.jsonl` file. A record that is a string is written as it is."""
    header = {
        "sessionId": session,
        "projectHash": "0",
        "startTime": "2026-11-16T07:24:48.509Z",
        "kind": "main",
    }
    lines = [
        record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))
        for record in (header, *records)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"session-2026-11-16T07-24-{session[:8]}.jsonl"
    file.write_text("".join(line + "\n" for line in lines))
    return file


def usage_of(file: Path) -> StoredUsage:
    """The usage of one file."""
    return read_usage(str(file), Folder(file.parent, None, False))


def requests(usages: list[StoredUsage]) -> list[StoredRequest]:
    return [request for usage in usages for request in usage.requests]


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("0.61.0/session-2026-11-16T07-24-2442f7e8.jsonl", 6),
        ("0.41.2/session-2026-11-16T07-24-4ea6ce31.jsonl", 6),
        ("0.61.0/acp/chats/session-2026-11-16T10-27-b92ea8bf.jsonl", 7),
    ],
)
def test_recorded_sessions(file: str, count: int) -> None:
    """Each request counts once, although the CLI repeats records in rewrites, checkpoints and
    resumes.
    """
    usage = usage_of(RECORDINGS / file)
    assert count == len(usage.requests)
    assert {EACH} == {request.tokens for request in usage.requests}
    assert all(request.model for request in usage.requests)
    assert usage.troubles == ()


def test_times_of_requests_stay() -> None:
    """A request keeps its own time, although a resume rewrites the history with a new time."""
    usage = usage_of(PLAIN_SESSION)
    assert usage.requests[0].at == "2026-11-16T07:24:48.599Z"
    assert usage.session == "2442f7e8-b90d-47e8-b4da-961cefd33e79"


def test_legacy() -> None:
    """Files of one JSON object (up to release 0.38) are read too."""
    file = RECORDINGS / "0.24.0" / "session-2026-11-16T07-24-b957c4a2.json"
    messages = json.loads(file.read_text())["messages"]
    expected = [message["id"] for message in messages if message.get("tokens")]
    assert expected and expected == [request.id for request in usage_of(file).requests]


def test_tokens_change(tmp_path: Path) -> None:
    """If a record is written again, its last known tokens count.

    A record without tokens changes nothing.
    """
    more = {"input": 50, "output": 2, "cached": 3, "thoughts": 4, "tool": 0, "total": 56}
    bare = answer(1, tokens=None)
    file = journal(tmp_path, answer(1), answer(1, tokens=more, toolCalls=[]), bare)
    assert [request.tokens.total for request in usage_of(file).requests] == [56]


def test_checkpoint_with_tokens(tmp_path: Path) -> None:
    """A request that is only in a checkpoint counts.

    A known request in a checkpoint does not count again.
    """
    again = answer(1, timestamp="2026-11-20T00:00:00.000Z")
    file = journal(tmp_path, answer(1), {"$set": {"messages": [again, answer(2)]}})
    counted = usage_of(file).requests
    assert [ID.format(1), ID.format(2)] == [request.id for request in counted]
    assert counted[0].at == "2026-11-16T07:24:41.599Z"


def test_rewound_requests_count(tmp_path: Path) -> None:
    """A rewound request still counts, because it was paid."""
    file = journal(tmp_path, answer(1), answer(2), {"$rewindTo": ID.format(1)})
    assert len(usage_of(file).requests) == 2


def test_other_uses_of_the_word_tokens(tmp_path: Path) -> None:
    """The word `tokens` in tool arguments, in text or in a user message is not counted."""
    call = {"id": "c", "name": "count", "args": {"tokens": {"input": 999}, "model": "x"}}
    prompt = {"id": "u", "type": "user", "timestamp": "", "content": 'a "tokens":{"input":5},"model":"x" b'}
    first = {"id": ID.format(3), "type": "gemini", "timestamp": "", "toolCalls": [call]}
    file = journal(
        tmp_path, prompt, first, {**first, **answer(3)}, {**prompt, "tokens": {"input": 7, "total": 7}}
    )
    usage = usage_of(file)
    assert [request.tokens.total for request in usage.requests] == [19]
    assert usage.troubles == ()


@pytest.mark.parametrize(
    "line",
    [
        '{"id":"x","type":"gemini","tokens":{"input":1',
        '{"id":"x","type":"gemini","content":"a{"id":"y","tokens":{"input":1},"model":"m"}',
        '"tokens":}',
    ],
)
def test_broken_line(tmp_path: Path, line: str) -> None:
    """A broken line is reported and skipped; the other lines count."""
    file = journal(tmp_path, answer(1), line, answer(2))
    usage = usage_of(file)
    assert [ID.format(1), ID.format(2)] == [request.id for request in usage.requests]
    assert [trouble.what for trouble in usage.troubles] == ["1 record that cannot be read"]


def test_odd_values(tmp_path: Path) -> None:
    """Float and missing token numbers are accepted, and so is a missing model."""
    odd = {"input": 10.0, "output": 2, "cached": None, "thoughts": None, "tool": 0, "total": 12}
    file = journal(tmp_path, answer(1, tokens=odd), answer(2, model=None))
    usage = usage_of(file)
    assert [(request.tokens.input, request.tokens.total) for request in usage.requests] == [
        (10, 12),
        (12, 18),
    ]
    assert None is usage.requests[1].model
    assert usage.troubles == ()


def test_torn_legacy(tmp_path: Path) -> None:
    """In a legacy file that was cut off, the messages before the cut count."""
    whole = json.dumps({"sessionId": "s", "projectHash": "0", "messages": [answer(1), answer(2)]}, indent=2)
    file = tmp_path / "session-2026-11-16T07-24-aaaaaaaa.json"
    file.write_text(whole[: whole.rindex('"tool"')])
    usage = usage_of(file)
    assert [ID.format(1)] == [request.id for request in usage.requests]
    assert len(usage.troubles) == 1


def test_unreadable(tmp_path: Path) -> None:
    """A file that cannot be read is reported, and no other file is affected."""
    usage = usage_of(tmp_path / "session-gone.jsonl")
    assert usage.requests == ()
    assert usage.troubles[0].what == "cannot be read: No such file or directory"


def test_a_session_file_that_is_no_file(session_files: Any) -> None:
    """A FIFO or a folder with the name of a session file is reported, and reading does not block."""
    os.mkfifo(session_files.chats() / "session-2026-11-16T07-24-aaaaaaaa.jsonl")
    (session_files.chats() / "session-2026-11-16T07-24-bbbbbbbb.jsonl").mkdir()
    journal(session_files.chats(), answer(1))
    usages = stored_usage(**session_files.where)
    assert len(requests(usages)) == 1
    assert len([trouble for usage in usages for trouble in usage.troubles]) == 2


def test_copies(session_files: Any) -> None:
    """Requests that a fork or a rescue copied count only for the source session."""
    chats = session_files.chats()
    source = Path(shutil.copy(RECORDINGS / "0.41.2" / "session-2026-11-16T07-24-4ea6ce31.jsonl", chats))
    before = requests(stored_usage(**session_files.where))
    fork(source, **session_files.where)
    rescue(source, session_files.project, **session_files.where)
    usages = stored_usage(**session_files.where)
    assert len(usages) == 3
    assert before == requests(usages) and len(before) == 6
    assert [usage.session for usage in usages if usage.requests] == ["4ea6ce31-9f20-4d02-a388-a15c9b069b7d"]


def test_requests_made_in_a_fork(session_files: Any) -> None:
    """Requests made in a fork count for the fork."""
    file = journal(session_files.chats(), answer(1))
    forked = Path(fork(file, **session_files.where).file)
    with forked.open("a") as more:
        more.write(json.dumps(answer(2)) + "\n")
    assert [len(usage.requests) for usage in stored_usage(**session_files.where)] == [1, 1]


def test_a_session_rewritten_as_jsonl_counts_once(session_files: Any) -> None:
    """A newer release rewrites a `.json` session as `.jsonl` and keeps the old file.

    The session counts once.
    """
    old = RECORDINGS / "0.24.0" / "session-2026-11-16T07-24-b957c4a2.json"
    shutil.copy(old, session_files.chats())
    stored = json.loads(old.read_text())
    journal(session_files.chats(), *stored["messages"], answer(7), session=stored["sessionId"])
    usages = stored_usage(**session_files.where)
    assert len(usage_of(old).requests) + 1 == len(requests(usages))
    assert {stored["sessionId"]} == {usage.session for usage in usages}


def test_same_short_ids(session_files: Any) -> None:
    """Message ids that are not UUIDs may repeat in other sessions.

    The same id with other tokens is another request.
    """
    journal(session_files.chats(), answer(1, id="g1"), session="aaaaaaaa-0000-4000-8000-000000000001")
    journal(session_files.chats(), answer(2, id="g1"), session="bbbbbbbb-0000-4000-8000-000000000001")
    journal(session_files.chats(), answer(2, id="g1"), session="cccccccc-0000-4000-8000-000000000001")
    assert len(requests(stored_usage(**session_files.where))) == 2


def test_subagents(session_files: Any) -> None:
    """A subagent's requests count for the conversation that called it."""
    chats = session_files.chats()
    shutil.copytree(RECORDINGS / "0.61.0", chats, dirs_exist_ok=True, ignore=shutil.ignore_patterns("acp"))
    usages = [usage for usage in stored_usage(**session_files.where) if usage.session.startswith("0e8b0bd4")]
    assert [usage.subagent for usage in usages] == [False, True]
    assert all(usage.requests for usage in usages)


def test_all_homes(session_files: Any, tmp_path: Path) -> None:
    """Without a home, the user's home and the private homes are read.

    A folder reached by a link is read once.
    """
    journal(session_files.chats(), answer(1))
    homes = session_files.where["places"].homes
    journal(homes / "isolated" / ".gemini" / "tmp" / "app" / "chats", answer(2))
    (homes / "abc" / ".gemini").mkdir(parents=True)
    (homes / "abc" / ".gemini" / "tmp").symlink_to(session_files.home / ".gemini" / "tmp")
    where = {"places": session_files.where["places"], "environ": {"HOME": str(session_files.home)}}
    assert len(stored_usage(**where)) == 2
    assert len(stored_usage(**where, home="isolated")) == 1
    assert len(stored_usage(session_files.project, **where)) == 1


def test_since(session_files: Any) -> None:
    """Files that were not changed since the given time are skipped."""
    file = journal(session_files.chats(), answer(1))
    os.utime(file, (1_000_000_000, 1_000_000_000))
    assert stored_usage(**session_files.where, since=datetime(2026, 1, 1, tzinfo=UTC)) == []
    assert len(stored_usage(**session_files.where, since=datetime(2001, 1, 1, tzinfo=UTC))) == 1
