"""`sessions.load` loads one session by id, prefix, `latest` or path, or raises one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.sessions import SessionDamaged, SessionError, SessionNotFound

A = "aaaaaaaa-7033-438d-a978-a361d8031f47"
B = "aaaaabbb-7033-438d-a978-a361d8031f47"


@pytest.fixture
def two_sessions(session_files: Any) -> Any:
    session_files.journal(session_files.chats(), A, turns=2)
    session_files.legacy(session_files.hashed(), B)
    return session_files


def _load(session_files: Any, session: Any, project: Any = ...) -> sessions.Session:
    return sessions.load(session, session_files.project if project is ... else project, **session_files.where)


@pytest.mark.parametrize("project", [..., None])
def test_load_by_id_prefix_and_latest(two_sessions: Any, project: Any) -> None:
    """A session is loaded by id, by the beginning of its id, or by `latest`, in one project or in
    all.
    """
    loaded = _load(two_sessions, A, project)
    assert loaded.id == A
    assert [message.text for message in loaded.messages][1:] == [
        "prompt 0",
        "answer 0",
        "prompt 1",
        "answer 1",
    ]
    assert loaded.header is not None
    assert (
        _load(two_sessions, A[:6], project) == _load(two_sessions, Path(loaded.info.file), project)
        or loaded.info.project
    )
    assert _load(two_sessions, "aaaaab", project).id == B
    assert [message.text for message in _load(two_sessions, B, project).messages] == ["prompt 0", "answer 0"]
    assert _load(two_sessions, "latest", project).id == B


def test_a_file_is_loaded_from_anywhere(two_sessions: Any, tmp_path: Path) -> None:
    """A session file outside of all homes is loaded by its path."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(Path(_load(two_sessions, A).info.file).read_bytes())
    assert _load(two_sessions, copy).id == A


def test_a_missing_session(two_sessions: Any) -> None:
    """The error for a missing session names the folders that were searched and similar ids."""
    with pytest.raises(SessionNotFound) as caught:
        _load(two_sessions, A[:-1] + "8")
    assert caught.value.nearest[0] == A
    assert caught.value.looked == (str(two_sessions.chats()), str(two_sessions.hashed()))
    assert str(two_sessions.chats()) in str(caught.value)
    assert f"Did you mean {A}" in str(caught.value)
    with pytest.raises(SessionNotFound, match="There are 2 sessions; the newest is aaaaabbb"):
        _load(two_sessions, "zzzzzzzz")
    with pytest.raises(SessionNotFound, match="no session folder yet") as caught:
        _load(two_sessions, A, "/elsewhere")
    assert caught.value.looked == (str(two_sessions.home / ".gemini" / "tmp"),)
    assert f"Looked in {caught.value.looked[0]}: " in str(caught.value)
    with pytest.raises(SessionNotFound, match="there is no session of"):
        _load(two_sessions, "latest", "/elsewhere")
    with pytest.raises(SessionNotFound, match="there is no file"):
        _load(two_sessions, two_sessions.root / "nothing")


def test_an_ambiguous_prefix_is_refused(two_sessions: Any) -> None:
    """A prefix of two ids is an error that names both. A prefix needs at least six characters."""
    two_sessions.journal(two_sessions.chats(), "aaaaaabb-1")
    with pytest.raises(SessionNotFound, match=r"2 sessions of .* begin with aaaaaa") as caught:
        _load(two_sessions, "aaaaaa")
    assert set(caught.value.nearest) == {A, "aaaaaabb-1"}
    with pytest.raises(SessionNotFound):
        _load(two_sessions, "aaaab"[:5])


@pytest.mark.parametrize("bad", ["../x", "a/b", "..", "a\0b", "", "x" * 10_000, "-x", "a.jsonl"])
def test_an_invalid_id_is_refused(two_sessions: Any, bad: str) -> None:
    """A text that is not a session id is an error."""
    with pytest.raises(SessionError, match="letters, digits"):
        _load(two_sessions, bad)


def test_a_file_without_a_session_is_damaged(two_sessions: Any, tmp_path: Path) -> None:
    """A session file without a header is damaged, and the error names `rescue`.

    A folder and an invalid path cannot be read.
    """
    file = Path(_load(two_sessions, A).info.file)
    file.write_bytes(file.read_bytes().partition(b"\n")[2])
    for session in (A, A[:8], file):
        with pytest.raises(SessionDamaged, match="rescue"):
            _load(two_sessions, session)
    for path in (tmp_path, Path("a\0b")):
        with pytest.raises(SessionDamaged, match="cannot be read"):
            _load(two_sessions, path)
