"""One stored session, whole: by its id, the beginning of it, `latest`, or its file."""

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
from geminids.sessions.finder import SessionInfo, find, info_of, named
from geminids.sessions.folders import Folder, chat_folders, read_regular_file
from geminids.sessions.peek import when

__all__ = ["Session", "load", "locate", "read_file"]

_SHORTEST = 6


class Session(msgspec.Struct, frozen=True):
    """A session with its conversation as it stands at the end."""

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
    """Load a session: a text is an id, six or more characters that one id begins with, or `latest`; a Path a file.

    `latest` is the one that was started last, as it is for the CLI. Raises SessionNotFound, which says where
    it looked, and SessionDamaged for a file in which the CLI would find no session: `rescue` may.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    conversation = replay(read_file(Path(info.file)).split(b"\n"))
    if conversation.header is None:
        raise SessionDamaged(
            "no session can be found in it", file=info.file, hint="sessions.rescue reads what is left of it."
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
    """Which session is meant, as `load` understands it, without reading it."""
    if isinstance(session, Path):
        return _of_file(session)
    if not is_session_id(session):
        raise SessionError(
            "a session id has letters, digits, - and _ only, at most 128 of them",
            hint="Give a file as a Path.",
        )
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if session != "latest" and (exact := named(folders, session)):
        return exact[0]
    there = find(project, home=home, environ=environ, places=places)
    matching = _matching(session, there)
    if len(matching) == 1:
        return matching[0]
    raise _not_found(session, project, folders, there, matching)


def _matching(session: str, there: Sequence[SessionInfo]) -> list[SessionInfo]:
    if session == "latest":
        return sorted((info for info in there if info.resumable is not False), key=_start)[-1:]
    exact = [info for info in there if info.id == session]
    # A file that has lost its header has kept the beginning of the id in its name.
    exact = exact or [info for info in there if info.damaged and session[:8] == info.id]
    if exact or len(session) < _SHORTEST:
        return exact
    return [info for info in there if info.id.startswith(session)]


def _start(info: SessionInfo) -> float:
    started = when(info.last_started) or info.started
    return started.timestamp() if started else 0.0


def _not_found(
    session: str,
    project: str | os.PathLike[str] | None,
    folders: Sequence[Folder],
    there: Sequence[SessionInfo],
    matching: Sequence[SessionInfo],
) -> SessionNotFound:
    looked = [str(folder.chats) for folder in folders]
    of = "any project" if project is None else os.path.abspath(project)
    if matching:
        ids = [info.id for info in matching]
        message = f"{len(ids)} sessions of {of} begin with {session}: {', '.join(ids[:5])}"
        return SessionNotFound(message, hint="Give more of the id.", looked=looked, nearest=ids)
    nearest = _nearest(session, there)
    where = f"Looked in {', '.join(looked[:5])}." if looked else "It has no folder for sessions yet."
    hint = f"{where} {_what_is_there(there, nearest)}"
    what = "no session" if session == "latest" else f"no session {session}"
    return SessionNotFound(f"there is {what} of {of}", hint=hint, looked=looked, nearest=nearest)


def _nearest(session: str, there: Sequence[SessionInfo]) -> list[str]:
    from difflib import get_close_matches  # imported late: only a mistake needs it

    ids = list(dict.fromkeys(info.id for info in there[:1000]))
    alike = [one for one in ids if one.startswith(session[:4])]
    return list(dict.fromkeys([*get_close_matches(session, ids, 3), *alike]))[:3]


def _what_is_there(there: Sequence[SessionInfo], nearest: Sequence[str]) -> str:
    if nearest:
        return f"Do you mean {' or '.join(nearest)}?"
    if not there:
        return "There are no sessions."
    how_many = "is 1 session" if len(there) == 1 else f"are {len(there)} sessions"
    return f"There {how_many}, the newest is {there[0].id}."


def _of_file(file: Path) -> SessionInfo:
    try:
        return info_of(file)
    except FileNotFoundError:
        raise SessionNotFound(f"there is no file {file}", looked=[str(file)]) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(f"cannot be read: {_reason(error)}", file=str(file)) from None


def read_file(file: Path) -> bytes:
    """The content of a session file."""
    try:
        return read_regular_file(file)
    except FileNotFoundError:
        raise SessionNotFound(f"there is no file {file}", looked=[str(file)]) from None
    except (OSError, ValueError) as error:
        raise SessionDamaged(f"cannot be read: {_reason(error)}", file=str(file)) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
