"""`sessions.fork` copies a session."""

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
def test_a_copy_has_the_same_messages_under_another_id(session_files: Any, kind: str) -> None:
    """A fork has the same messages, folder and file format, another id and mode 0600.

    The original does not change.
    """
    file = getattr(session_files, kind)(session_files.chats(), A, turns=2)
    before = file.read_bytes()
    copy = sessions.fork(A, session_files.project, **session_files.where)
    assert copy.id != A
    assert Path(copy.file).parent == file.parent
    assert Path(copy.file).suffix == file.suffix
    assert Path(copy.file).name.endswith(f"-{copy.id[:8]}{file.suffix}")
    assert stat.S_IMODE(os.stat(copy.file).st_mode) == 0o600
    assert file.read_bytes() == before
    assert len(list(file.parent.iterdir())) == 2
    copied, original = (
        sessions.load(session, session_files.project, **session_files.where) for session in (copy.id, A)
    )
    assert copied.messages == original.messages
    assert copied.header is not None
    assert original.header is not None
    assert copied.header.project_hash == original.header.project_hash
    assert sessions.load("latest", session_files.project, **session_files.where).id == copy.id


def test_a_copy_up_to_a_message(session_files: Any) -> None:
    """With `at`, the fork ends with that message.

    An unknown message is an error, and so is a fork without resumable messages.
    """
    session_files.journal(session_files.chats(), A, turns=3)
    copy = sessions.fork(A, session_files.project, at="g1", **session_files.where)
    copied = sessions.load(copy.id, session_files.project, **session_files.where)
    assert [message.id for message in copied.messages][1:] == ["u0", "g0", "u1", "g1"]
    with pytest.raises(SessionError, match="no message 'g9'"):
        sessions.fork(A, session_files.project, at="g9", **session_files.where)
    with pytest.raises(SessionError, match="no prompt to the model"):
        sessions.fork(A, session_files.project, at=f"c-{A}", **session_files.where)
    assert len(sessions.find(session_files.project, **session_files.where)) == 2


def test_a_full_disk_is_reported(session_files: Any) -> None:
    """A full disk gives one clear error and leaves no partial file."""
    file = session_files.journal(session_files.chats(), A, turns=300)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(SessionError, match="cannot write"):
            sessions.fork(A, session_files.project, **session_files.where)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(session_files.chats().iterdir()) == [file]


def test_a_tool_result_is_copied_once(session_files: Any) -> None:
    """The CLI may store a tool result several times.

    The fork has it once, because the API accepts one result per call.
    """
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
    file = session_files.journal(session_files.chats(), A)
    file.write_bytes(
        file.read_bytes() + b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    )
    copy = sessions.fork(A, session_files.project, **session_files.where)
    copied = sessions.load(copy.id, session_files.project, **session_files.where)
    assert [message.id for message in copied.messages][-2:] == ["g", "r2"]


def test_a_copy_of_an_acp_session(tmp_path: Path) -> None:
    """A fork of an ACP session has only the tool calls before its last message.

    One stored message holds all calls.
    """
    (tmp_path / "chats").mkdir()
    source, journal = recorded("0.61.0", "Look around.")
    file = Path(shutil.copy(source, tmp_path / "chats" / source.name))
    (at,) = [message.id for message in journal.messages if message.text == "Done."]
    copy = sessions.load(Path(sessions.fork(file, at=at).file))
    names = [call.name for message in copy.messages for call in message.tool_calls]
    assert names == ["read_file", "run_shell_command", "write_file", "nonesuch"]
    assert copy.messages[-1].id == at
