"""One session, whole: by id, prefix, `latest` or file; or one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.errors import SessionDamaged, SessionError, SessionNotFound

A = "aaaaaaaa-7033-438d-a978-a361d8031f47"
B = "aaaaabbb-7033-438d-a978-a361d8031f47"


@pytest.fixture
def both(shelf: Any) -> Any:
    shelf.journal(shelf.chats(), A, turns=2)
    shelf.legacy(shelf.hashed(), B)
    return shelf


def _load(shelf: Any, session: Any, project: Any = ...) -> sessions.Session:
    return sessions.load(session, shelf.project if project is ... else project, **shelf.where)


@pytest.mark.parametrize("project", [..., None])
def test_an_id_its_beginning_and_latest(both: Any, project: Any) -> None:
    """In one project or in all; `latest` is the one that was started last."""
    loaded = _load(both, A, project)
    assert loaded.id == A
    assert [message.text for message in loaded.messages][1:] == [
        "prompt 0",
        "answer 0",
        "prompt 1",
        "answer 1",
    ]
    assert loaded.header is not None
    assert _load(both, A[:6], project) == _load(both, Path(loaded.info.file), project) or loaded.info.project
    assert _load(both, "aaaaab", project).id == B
    assert [message.text for message in _load(both, B, project).messages] == ["prompt 0", "answer 0"]
    assert _load(both, "latest", project).id == B


def test_a_file_is_loaded_from_anywhere(both: Any, tmp_path: Path) -> None:
    """A copy that lies outside of all homes."""
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(Path(_load(both, A).info.file).read_bytes())
    assert _load(both, copy).id == A


def test_one_that_is_not_there_says_where_it_looked(both: Any) -> None:
    """And what is near."""
    with pytest.raises(SessionNotFound) as caught:
        _load(both, A[:-1] + "8")
    assert caught.value.nearest[0] == A
    assert caught.value.looked == (str(both.chats()), str(both.hashed()))
    assert str(both.chats()) in str(caught.value)
    assert f"Did you mean {A}" in str(caught.value)
    with pytest.raises(SessionNotFound, match="There are 2 sessions; the newest is aaaaabbb"):
        _load(both, "zzzzzzzz")
    with pytest.raises(SessionNotFound, match="no session folder yet"):
        _load(both, A, "/elsewhere")
    with pytest.raises(SessionNotFound, match="there is no session of"):
        _load(both, "latest", "/elsewhere")
    with pytest.raises(SessionNotFound, match="there is no file"):
        _load(both, both.root / "nothing")


def test_a_beginning_of_two_ids_is_refused(both: Any) -> None:
    """It says which they are; less than six characters are never enough."""
    both.journal(both.chats(), "aaaaaabb-1")
    with pytest.raises(SessionNotFound, match=r"2 sessions of .* begin with aaaaaa") as caught:
        _load(both, "aaaaaa")
    assert set(caught.value.nearest) == {A, "aaaaaabb-1"}
    with pytest.raises(SessionNotFound):
        _load(both, "aaaab"[:5])


@pytest.mark.parametrize("bad", ["../x", "a/b", "..", "a\0b", "", "x" * 10_000, "-x", "a.jsonl"])
def test_what_is_no_id_is_refused(both: Any, bad: str) -> None:
    """Before anything is looked at."""
    with pytest.raises(SessionError, match="letters, digits"):
        _load(both, bad)


def test_a_file_that_holds_no_session_is_damaged(both: Any, tmp_path: Path) -> None:
    """It says what to do; a folder is no file, and a FIFO is not waited for."""
    file = Path(_load(both, A).info.file)
    file.write_bytes(file.read_bytes().partition(b"\n")[2])
    for session in (A, A[:8], file):
        with pytest.raises(SessionDamaged, match="rescue"):
            _load(both, session)
    for odd in (tmp_path, Path("a\0b")):
        with pytest.raises(SessionDamaged, match="cannot be read"):
            _load(both, odd)
