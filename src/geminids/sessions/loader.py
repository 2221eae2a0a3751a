"""Load one stored session by its id, a prefix of it, `latest`, or its file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import SessionDamaged, SessionError, SessionNotFound
from geminids.gemini.protocol.journal.records import Header, Message
from geminids.gemini.protocol.journal.replay import Conversation, replay
from geminids.ids import is_session_id
from geminids.sessions.finder import SessionInfo, find, find_by_id, info_of
from geminids.sessions.folders import Folder, chat_folders, read_regular_file
from geminids.sessions.peek import parse_time

__all__ = ["Session", "load", "locate", "read_file"]

_SHORTEST = 6


class Session(msgspec.Struct, frozen=True):
    """A session and the final state of its conversation."""

    info: SessionInfo
    conversation: Conversation

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def header(self) -> Header | None:
        return self.conversation.header

    @property
    def messages(self) -> list[Message]:
        return self.conversation.messages


def load(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Session:
    """Load a session. `session` is an id, a unique prefix of at least six characters, `latest` or a Path.

    `latest` is the session that was started last, as in the CLI. Raises SessionNotFound with the
    folders that were searched, and SessionDamaged if the CLI cannot read the file; try `rescue` then.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    conversation = replay(read_file(Path(info.file)).split(b"\n"))
    if conversation.header is None:
        raise SessionDamaged(
            "contains no session", file=info.file, hint="Recover its messages with sessions.rescue."
        )
    return Session(info, conversation)


def locate(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> SessionInfo:
    """Find a session like `load` does, without reading it."""
    if isinstance(session, Path):
        return _describe_file(session)
    if not is_session_id(session):
        raise SessionError(
            "a session id consists of at most 128 letters, digits, - and _",
            hint="Pass a file as a Path.",
        )
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if session != "latest" and (exact := find_by_id(folders, session)):
        return exact[0]
    sessions = find(project, home=home, environ=environ, places=places)
    matching = _matching(session, sessions)
    if len(matching) == 1:
        return matching[0]
    raise _not_found(session, project, folders, sessions, matching)


def _matching(session: str, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
    if session == "latest":
        return sorted((info for info in sessions if info.resumable is not False), key=_start)[-1:]
    exact = [info for info in sessions if info.id == session]
    # A file that has lost its header still has the start of the id in its name.
    exact = exact or [info for info in sessions if info.damaged and session[:8] == info.id]
    if exact or len(session) < _SHORTEST:
        return exact
    return [info for info in sessions if info.id.startswith(session)]


def _start(info: SessionInfo) -> float:
    started = parse_time(info.last_started) or info.started
    return started.timestamp() if started else 0.0


def _not_found(
    session: str,
    project: str | os.PathLike[str] | None,
    folders: Sequence[Folder],
    sessions: Sequence[SessionInfo],
    matching: Sequence[SessionInfo],
) -> SessionNotFound:
    looked = [str(folder.chats) for folder in folders]
    owner = "any project" if project is None else os.path.abspath(project)
    if matching:
        ids = [info.id for info in matching]
        message = f"{len(ids)} sessions of {owner} begin with {session}: {', '.join(ids[:5])}"
        return SessionNotFound(message, hint="Use more characters of the id.", looked=looked, nearest=ids)
    nearest = _nearest(session, sessions)
    where = f"Looked in {', '.join(looked[:5])}." if looked else "It has no session folder yet."
    hint = f"{where} {_suggest(sessions, nearest)}"
    missing = "no session" if session == "latest" else f"no session {session}"
    return SessionNotFound(f"there is {missing} of {owner}", hint=hint, looked=looked, nearest=nearest)


def _nearest(session: str, sessions: Sequence[SessionInfo]) -> list[str]:
    from difflib import get_close_matches  # imported late: only this error needs it

    ids = list(dict.fromkeys(info.id for info in sessions[:1000]))
    similar = [known for known in ids if known.startswith(session[:4])]
    return list(dict.fromkeys([*get_close_matches(session, ids, 3), *similar]))[:3]


def _suggest(sessions: Sequence[SessionInfo], nearest: Sequence[str]) -> str:
    if nearest:
        return f"Did you mean {' or '.join(nearest)}?"
    if not sessions:
        return "There are no sessions."
    count = "is 1 session" if len(sessions) == 1 else f"are {len(sessions)} sessions"
    return f"There {count}; the newest is {sessions[0].id}."


def _describe_file(file: Path) -> SessionInfo:
    try:
        return info_of(file)
    except FileNotFoundError:
        raise SessionNotFound(f"there is no file {file}", looked=[str(file)]) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(f"cannot be read: {_reason(error)}", file=str(file)) from None


def read_file(file: Path) -> bytes:
    """Read a session file; raises SessionNotFound or SessionDamaged."""
    try:
        return read_regular_file(file)
    except FileNotFoundError:
        raise SessionNotFound(f"there is no file {file}", looked=[str(file)]) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(f"cannot be read: {_reason(error)}", file=str(file)) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
