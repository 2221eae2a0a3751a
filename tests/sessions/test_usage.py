"""The requests that stored sessions tell of."""

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
from geminids.sessions.usage import Request, Spent, StoredUsage, read_usage, stored_usage
from recordings import RECORDINGS

TALK = RECORDINGS / "0.61.0" / "session-2026-11-16T07-24-2442f7e8.jsonl"
# What each recorded request has: the scripted model tells the same of all.
EACH = Spent(100, 7, 40, 5, 0, 112)
ID = "4294f67c-cac7-469d-a089-aae52457a53{}"


def answer(number: int = 0, **other: Any) -> dict[str, Any]:
    """A message of the model, as 0.61.0 writes it."""
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
    """A `.jsonl` file; a text among the records is a line as it is."""
    header = {
        "sessionId": session,
        "projectHash": "0",
        "startTime": "2026-11-16T07:24:48.509Z",
        "kind": "main",
    }
    lines = [
        one if isinstance(one, str) else json.dumps(one, separators=(",", ":")) for one in (header, *records)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"session-2026-11-16T07-24-{session[:8]}.jsonl"
    file.write_text("".join(line + "\n" for line in lines))
    return file


def usage_of(file: Path) -> StoredUsage:
    """What one file tells, by itself."""
    return read_usage(str(file), Folder(file.parent, None, False))


def requests(found: list[StoredUsage]) -> list[Request]:
    return [request for one in found for request in one.requests]


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("0.61.0/session-2026-11-16T07-24-2442f7e8.jsonl", 6),
        ("0.41.2/session-2026-11-16T07-24-4ea6ce31.jsonl", 6),
        ("0.61.0/acp/chats/session-2026-11-16T10-27-b92ea8bf.jsonl", 7),
    ],
)
def test_recorded(file: str, count: int) -> None:
    """Records that the CLI writes again, checkpoints and resumes add nothing: each request is told once."""
    found = usage_of(RECORDINGS / file)
    assert count == len(found.requests)
    assert {EACH} == {request.tokens for request in found.requests}
    assert all(request.model for request in found.requests)
    assert found.troubles == ()


def test_times_stay() -> None:
    """A resume writes the history anew with the time of the resume; the request keeps its own."""
    found = usage_of(TALK)
    assert found.requests[0].at == "2026-11-16T07:24:48.599Z"
    assert found.session == "2442f7e8-b90d-47e8-b4da-961cefd33e79"


def test_legacy() -> None:
    """Files of one JSON object (to 0.38) are read too."""
    file = RECORDINGS / "0.24.0" / "session-2026-11-16T07-24-b957c4a2.json"
    messages = json.loads(file.read_text())["messages"]
    expected = [message["id"] for message in messages if message.get("tokens")]
    assert expected and expected == [request.id for request in usage_of(file).requests]


def test_tokens_change(tmp_path: Path) -> None:
    """Of a record that is written again the last tokens hold; one that has none takes nothing away."""
    more = {"input": 50, "output": 2, "cached": 3, "thoughts": 4, "tool": 0, "total": 56}
    bare = answer(1, tokens=None)
    file = journal(tmp_path, answer(1), answer(1, tokens=more, toolCalls=[]), bare)
    assert [request.tokens.total for request in usage_of(file).requests] == [56]


def test_checkpoint_with_tokens(tmp_path: Path) -> None:
    """What only a checkpoint or a header tells counts; what was told before is not told again."""
    again = answer(1, timestamp="2026-11-20T00:00:00.000Z")
    file = journal(tmp_path, answer(1), {"$set": {"messages": [again, answer(2)]}})
    found = usage_of(file).requests
    assert [ID.format(1), ID.format(2)] == [request.id for request in found]
    assert found[0].at == "2026-11-16T07:24:41.599Z"


def test_taken_back(tmp_path: Path) -> None:
    """A request that the user has taken back (/rewind) was paid all the same."""
    file = journal(tmp_path, answer(1), answer(2), {"$rewindTo": ID.format(1)})
    assert len(usage_of(file).requests) == 2


def test_other_tokens(tmp_path: Path) -> None:
    """What is called tokens elsewhere, in a tool's arguments or in a text, is none of the message's."""
    call = {"id": "c", "name": "count", "args": {"tokens": {"input": 999}, "model": "x"}}
    said = {"id": "u", "type": "user", "timestamp": "", "content": 'a "tokens":{"input":5},"model":"x" b'}
    first = {"id": ID.format(3), "type": "gemini", "timestamp": "", "toolCalls": [call]}
    file = journal(
        tmp_path, said, first, {**first, **answer(3)}, {**said, "tokens": {"input": 7, "total": 7}}
    )
    found = usage_of(file)
    assert [request.tokens.total for request in found.requests] == [19]
    assert found.troubles == ()


@pytest.mark.parametrize(
    "line",
    [
        '{"id":"x","type":"gemini","tokens":{"input":1',
        '{"id":"x","type":"gemini","content":"a{"id":"y","tokens":{"input":1},"model":"m"}',
        '"tokens":}',
    ],
)
def test_broken_line(tmp_path: Path, line: str) -> None:
    """A broken line costs that line, and is told."""
    file = journal(tmp_path, answer(1), line, answer(2))
    found = usage_of(file)
    assert [ID.format(1), ID.format(2)] == [request.id for request in found.requests]
    assert [trouble.what for trouble in found.troubles] == ["1 record that cannot be read"]


def test_odd_values(tmp_path: Path) -> None:
    """Amounts that are no whole numbers, or none, are read as far as they go."""
    odd = {"input": 10.0, "output": 2, "cached": None, "thoughts": None, "tool": 0, "total": 12}
    file = journal(tmp_path, answer(1, tokens=odd), answer(2, model=None))
    found = usage_of(file)
    assert [(one.tokens.input, one.tokens.total) for one in found.requests] == [(10, 12), (12, 18)]
    assert None is found.requests[1].model
    assert found.troubles == ()


def test_torn_legacy(tmp_path: Path) -> None:
    """Of a legacy file that was cut off, the messages before the cut count."""
    whole = json.dumps({"sessionId": "s", "projectHash": "0", "messages": [answer(1), answer(2)]}, indent=2)
    file = tmp_path / "session-2026-11-16T07-24-aaaaaaaa.json"
    file.write_text(whole[: whole.rindex('"tool"')])
    found = usage_of(file)
    assert [ID.format(1)] == [request.id for request in found.requests]
    assert len(found.troubles) == 1


def test_unreadable(tmp_path: Path) -> None:
    """A file that cannot be read is told, and costs nothing else."""
    found = usage_of(tmp_path / "session-gone.jsonl")
    assert found.requests == ()
    assert found.troubles[0].what == "cannot be read: No such file or directory"


def test_no_file(shelf: Any) -> None:
    """A pipe or a folder with a session's name is told, and never waited for."""
    os.mkfifo(shelf.chats() / "session-2026-11-16T07-24-aaaaaaaa.jsonl")
    (shelf.chats() / "session-2026-11-16T07-24-bbbbbbbb.jsonl").mkdir()
    journal(shelf.chats(), answer(1))
    found = stored_usage(**shelf.where)
    assert len(requests(found)) == 1
    assert len([trouble for one in found for trouble in one.troubles]) == 2


def test_copies(shelf: Any) -> None:
    """A fork and a rescue have the requests of their source, which count for the source alone."""
    chats = shelf.chats()
    source = Path(shutil.copy(RECORDINGS / "0.41.2" / "session-2026-11-16T07-24-4ea6ce31.jsonl", chats))
    before = requests(stored_usage(**shelf.where))
    fork(source, **shelf.where)
    rescue(source, shelf.project, **shelf.where)
    found = stored_usage(**shelf.where)
    assert len(found) == 3
    assert before == requests(found) and len(before) == 6
    assert [one.session for one in found if one.requests] == ["4ea6ce31-9f20-4d02-a388-a15c9b069b7d"]


def test_goes_on_in_a_fork(shelf: Any) -> None:
    """What is asked in the fork itself counts for the fork."""
    file = journal(shelf.chats(), answer(1))
    made = Path(fork(file, **shelf.where).file)
    with made.open("a") as more:
        more.write(json.dumps(answer(2)) + "\n")
    assert [len(one.requests) for one in stored_usage(**shelf.where)] == [1, 1]


def test_taken_over(shelf: Any) -> None:
    """A newer release writes a `.json` session anew as `.jsonl`, and leaves the old file: one session, counted once."""
    old = RECORDINGS / "0.24.0" / "session-2026-11-16T07-24-b957c4a2.json"
    shutil.copy(old, shelf.chats())
    whole = json.loads(old.read_text())
    journal(shelf.chats(), *whole["messages"], answer(7), session=whole["sessionId"])
    found = stored_usage(**shelf.where)
    assert len(usage_of(old).requests) + 1 == len(requests(found))
    assert {whole["sessionId"]} == {one.session for one in found}


def test_same_short_ids(shelf: Any) -> None:
    """Ids that are no UUID may be another conversation's: the same one with other tokens is another request."""
    journal(shelf.chats(), answer(1, id="g1"), session="aaaaaaaa-0000-4000-8000-000000000001")
    journal(shelf.chats(), answer(2, id="g1"), session="bbbbbbbb-0000-4000-8000-000000000001")
    journal(shelf.chats(), answer(2, id="g1"), session="cccccccc-0000-4000-8000-000000000001")
    assert len(requests(stored_usage(**shelf.where))) == 2


def test_subagents(shelf: Any) -> None:
    """A subagent's requests count for the conversation that called it."""
    chats = shelf.chats()
    shutil.copytree(RECORDINGS / "0.61.0", chats, dirs_exist_ok=True, ignore=shutil.ignore_patterns("acp"))
    found = [one for one in stored_usage(**shelf.where) if one.session.startswith("0e8b0bd4")]
    assert [one.subagent for one in found] == [False, True]
    assert all(one.requests for one in found)


def test_all_homes(shelf: Any, tmp_path: Path) -> None:
    """Without a home, the user's and the private ones are read, and a tree that several lead to is read once."""
    journal(shelf.chats(), answer(1))
    homes = shelf.where["places"].homes
    journal(homes / "isolated" / ".gemini" / "tmp" / "app" / "chats", answer(2))
    (homes / "abc" / ".gemini").mkdir(parents=True)
    (homes / "abc" / ".gemini" / "tmp").symlink_to(shelf.home / ".gemini" / "tmp")
    where = {"places": shelf.where["places"], "environ": {"HOME": str(shelf.home)}}
    assert len(stored_usage(**where)) == 2
    assert len(stored_usage(**where, home="isolated")) == 1
    assert len(stored_usage(shelf.project, **where)) == 1


def test_since(shelf: Any) -> None:
    """Files that were not changed since are passed over."""
    file = journal(shelf.chats(), answer(1))
    os.utime(file, (1_000_000_000, 1_000_000_000))
    assert stored_usage(**shelf.where, since=datetime(2026, 1, 1, tzinfo=UTC)) == []
    assert len(stored_usage(**shelf.where, since=datetime(2001, 1, 1, tzinfo=UTC))) == 1
