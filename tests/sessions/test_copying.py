"""A copy of a session."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.errors import SessionError
from recordings import recorded

A = "aaaaaaaa-7033-438d-a978-a361d8031f47"


@pytest.mark.parametrize("kind", ["journal", "legacy"])
def test_a_copy_has_the_same_messages_under_another_id(shelf: Any, kind: str) -> None:
    """In the same folder and form, for its owner alone; the original is not touched, and no draft is left."""
    file = getattr(shelf, kind)(shelf.chats(), A, turns=2)
    before = file.read_bytes()
    copy = sessions.fork(A, shelf.project, **shelf.where)
    assert copy.id != A
    assert Path(copy.file).parent == file.parent
    assert Path(copy.file).suffix == file.suffix
    assert Path(copy.file).name.endswith(f"-{copy.id[:8]}{file.suffix}")
    assert stat.S_IMODE(os.stat(copy.file).st_mode) == 0o600
    assert file.read_bytes() == before
    assert len(list(file.parent.iterdir())) == 2
    made, original = (sessions.load(one, shelf.project, **shelf.where) for one in (copy.id, A))
    assert made.messages == original.messages
    assert made.header is not None
    assert original.header is not None
    assert made.header.project_hash == original.header.project_hash
    assert sessions.load("latest", shelf.project, **shelf.where).id == copy.id


def test_a_copy_up_to_a_message(shelf: Any) -> None:
    """That one is the last that it has; an unknown one is an error, and so is a copy of nothing."""
    shelf.journal(shelf.chats(), A, turns=3)
    copy = sessions.fork(A, shelf.project, at="g1", **shelf.where)
    made = sessions.load(copy.id, shelf.project, **shelf.where)
    assert [message.id for message in made.messages][1:] == ["u0", "g0", "u1", "g1"]
    with pytest.raises(SessionError, match="no message 'g9'"):
        sessions.fork(A, shelf.project, at="g9", **shelf.where)
    with pytest.raises(SessionError, match="no message that the CLI can resume"):
        sessions.fork(A, shelf.project, at=f"c-{A}", **shelf.where)
    assert len(sessions.find(shelf.project, **shelf.where)) == 2


def test_a_disk_that_is_full_is_told(shelf: Any) -> None:
    """One clear error, and nothing half is left."""
    file = shelf.journal(shelf.chats(), A, turns=300)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(SessionError, match="cannot write"):
            sessions.fork(A, shelf.project, **shelf.where)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(shelf.chats().iterdir()) == [file]


def test_a_tools_result_is_told_once(shelf: Any) -> None:
    """The CLI keeps it with the call, as a message, and in a third one of its own: the API takes one a call."""
    answer = {"functionResponse": {"id": "call-1", "name": "ls", "response": {"output": "x"}}}
    other = {"functionResponse": {"id": "call-2", "name": "ls", "response": {"output": "y"}}}
    call = {"id": "call-1", "name": "ls", "args": {}, "result": [answer], "status": "success"}
    messages = [
        {"id": "u", "type": "user", "content": "go on", "timestamp": ""},
        {"id": "g", "type": "gemini", "content": "", "timestamp": "", "toolCalls": [call]},
        {"id": "g_response", "type": "user", "content": [answer], "timestamp": ""},
        {"id": "r1", "type": "user", "content": [answer], "timestamp": ""},
        {"id": "r2", "type": "user", "content": [other], "timestamp": ""},
        {"id": "r3", "type": "user", "content": [other], "timestamp": ""},
    ]
    file = shelf.journal(shelf.chats(), A)
    file.write_bytes(file.read_bytes() + b"".join(json.dumps(one).encode() + b"\n" for one in messages))
    copy = sessions.fork(A, shelf.project, **shelf.where)
    made = sessions.load(copy.id, shelf.project, **shelf.where)
    assert [message.id for message in made.messages][-2:] == ["g", "r2"]


def test_a_copy_of_a_session_that_was_made_on_acp(tmp_path: Path) -> None:
    """There one message has the calls of all answers: those behind the last message of the copy stay behind."""
    (tmp_path / "chats").mkdir()
    source, told = recorded("0.61.0", "Look around.")
    file = Path(shutil.copy(source, tmp_path / "chats" / source.name))
    (at,) = [one.id for one in told.messages if one.text == "Done."]
    copy = sessions.load(Path(sessions.fork(file, at=at).file))
    names = [call.name for one in copy.messages for call in one.tool_calls]
    assert names == ["read_file", "run_shell_command", "write_file", "nonesuch"]
    assert copy.messages[-1].id == at
