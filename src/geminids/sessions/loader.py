"""Find and load one stored session. The session is identified by its id, the start of its id, the
word `latest`, or the path of its file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import SessionDamaged, SessionError, SessionNotFound
from geminids.gemini.protocol.journal.records import Header, StoredMessage
from geminids.gemini.protocol.journal.replay import StoredConversation, replay
from geminids.ids import is_session_id
from geminids.sessions.file_summary import parse_time
from geminids.sessions.finder import SessionInfo, find, find_by_id, info_of
from geminids.sessions.folders import Folder, chat_folders, home_of, read_regular_file

__all__ = ["Session", "load", "locate", "read_file"]

_SHORTEST = 6


class Session(msgspec.Struct, frozen=True):
    """A session that was loaded: `info` describes it, and `conversation` contains all its
    messages.
    """

    info: SessionInfo
    conversation: StoredConversation

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def header(self) -> Header | None:
        return self.conversation.header

    @property
    def messages(self) -> list[StoredMessage]:
        return self.conversation.messages


def load(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Session:
    """Load a session with all its messages.

    `session` is the id of a session, the start of an id, `latest`, or a `Path` of a session file.
    The start of an id must have at least six characters, and only one session id may start with it.
    As in the CLI, `latest` is the session that was started last, of all sessions that can be
    resumed. If `project` is None, the sessions of all projects are searched.

    Raises:

    - `SessionError` if `session` cannot be an id.
    - `SessionNotFound`, which lists the searched folders, if no session or several sessions match.
    - `SessionDamaged` if the file cannot be read as a session. `rescue` may recover the messages of
      such a file.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    conversation = replay(read_file(Path(info.file)).split(b"\n"))
    if conversation.header is None:
        raise SessionDamaged(
            "contains no session",
            file=info.file,
            hint="Try to recover its messages with `sessions.rescue()`.",
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
    """Find the session that `load` would load, and return a description of it. The parameters and
    errors are those of `load`.

    The messages are not loaded. So a damaged session is also returned, if its file can be read.
    """
    if isinstance(session, Path):
        return _describe_file(session)
    if not is_session_id(session):
        raise SessionError(
            f"{session[:200]!r} is not a session id, which has at most 128 letters, digits, - and _",
            hint="To load a session file, pass its path as a `Path`.",
        )
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if session != "latest" and (exact := find_by_id(folders, session)):
        return exact[0]
    sessions = find(project, home=home, environ=environ, places=places)
    matching = _matching(session, sessions)
    if len(matching) == 1:
        return matching[0]
    environ = os.environ if environ is None else environ
    storage = home_of(home, environ, places or Places.of(environ)) / ".gemini" / "tmp"
    raise _not_found(session, project, storage, folders, sessions, matching)


def _matching(session: str, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
    if session == "latest":
        return sorted((info for info in sessions if info.resumable is not False), key=_start)[-1:]
    exact = [info for info in sessions if info.id == session]
    # A damaged file may have no header, but its name contains the start of the session id.
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
    storage: Path,
    folders: Sequence[Folder],
    sessions: Sequence[SessionInfo],
    matching: Sequence[SessionInfo],
) -> SessionNotFound:
    looked = [str(folder.chats) for folder in folders] or [str(storage)]
    owner = "any project" if project is None else os.path.abspath(project)
    if matching:
        ids = [info.id for info in matching]
        message = f"the ids of {len(ids)} sessions of {owner} begin with {session}: {', '.join(ids[:5])}"
        return SessionNotFound(message, hint="Use more characters of the id.", looked=looked, nearest=ids)
    nearest = _nearest(session, sessions)
    where = f"Looked in {', '.join(looked[:5])}" + ("." if folders else ": there is no session folder yet.")
    hint = f"{where} {_suggest(sessions, nearest)}"
    missing = "no session" if session == "latest" else f"no session {session}"
    return SessionNotFound(f"there is {missing} of {owner}", hint=hint, looked=looked, nearest=nearest)


def _nearest(session: str, sessions: Sequence[SessionInfo]) -> list[str]:
    ids = list(dict.fromkeys(info.id for info in sessions[:1000]))
    similar = [known for known in ids if known.startswith(session[:4])]
    return list(dict.fromkeys([*get_close_matches(session, ids, 3), *similar]))[:3]


def _suggest(sessions: Sequence[SessionInfo], nearest: Sequence[str]) -> str:
    if nearest:
        return f"Did you mean {' or '.join(nearest)}?"
    if not sessions:
        return "There are no sessions."
    count = "is 1 session" if len(sessions) == 1 else f"are {len(sessions)} sessions"
    newest = sessions[0]
    state = "is damaged" if newest.damaged else "cannot be resumed" if newest.resumable is False else None
    return f"There {count}; the newest is {newest.id}" + (f", which {state}." if state else ".")


def _describe_file(file: Path) -> SessionInfo:
    try:
        return info_of(file)
    except FileNotFoundError:
        raise SessionNotFound(
            f"there is no file {file}",
            hint="Check the path, or list the sessions: geminids sessions list",
            looked=[str(file)],
        ) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(
            f"cannot be read: {_reason(error)}", file=str(file), hint="Check the permissions of the file."
        ) from None


def read_file(file: Path) -> bytes:
    """Return the content of a session file.

    Raises `SessionNotFound` if the file does not exist, or `SessionDamaged` if it cannot be read.
    """
    try:
        return read_regular_file(file)
    except FileNotFoundError:
        raise SessionNotFound(
            f"there is no file {file}",
            hint="Check the path, or list the sessions: geminids sessions list",
            looked=[str(file)],
        ) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(
            f"cannot be read: {_reason(error)}", file=str(file), hint="Check the permissions of the file."
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
