"""Which stored session a command means; `geminids sessions fork` and `rescue`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from geminids.errors import SessionDamaged, SessionError, SessionNotFound
from geminids.gemini.protocol.journal.records import Header, Message
from geminids.gemini.protocol.journal.stream import Journal, open_journal
from geminids.ids import is_session_id
from geminids.sessions.finder import SessionInfo
from geminids.sessions.loader import locate
from geminids.sessions.repair.rescue import Rescue, fork, rescue
from geminids.sessions.transcript import Agents
from geminids.views.sanitize import clean

__all__ = [
    "Opened",
    "fork_session",
    "is_file",
    "locate_session",
    "open_session",
    "project_of",
    "rescue_session",
    "resume_line",
]


class Opened(msgspec.Struct, frozen=True):
    """A session that can be read, message by message."""

    info: SessionInfo
    journal: Journal

    @property
    def header(self) -> Header:
        assert self.journal.header is not None
        return self.journal.header

    @property
    def messages(self) -> Iterator[Message]:
        return _readable(self.journal, self.info)

    @property
    def agents(self) -> Agents:
        return Agents(Path(self.info.file), self.header.session_id)


def is_file(session: str) -> bool:
    """Whether a word of the command line is a file's name rather than an id."""
    return os.sep in session or session.endswith((".json", ".jsonl"))


def locate_session(session: str, cwd: str | None, home: str) -> SessionInfo:
    """The session of a folder; where no folder was named, of this one, and else of any."""
    if is_file(session):
        info = locate(Path(session))
        return msgspec.structs.replace(info, project=project_of(info))
    if not is_session_id(session):
        raise click.UsageError(
            "a session is named by its id, six or more characters that it begins with, latest, or a file"
        )
    if cwd is not None or session == "latest":
        return locate(session, os.path.abspath(cwd or "."), home=home)
    try:
        return locate(session, os.getcwd(), home=home)
    except SessionNotFound as error:
        if any(one.startswith(session) for one in error.nearest):
            raise  # there are several
    return locate(session, home=home)


def project_of(info: SessionInfo) -> str | None:
    """The folder that a session is of; a file by itself tells it by where it lies."""
    if info.project is not None:
        return info.project
    folder = Path(info.file).absolute().parent
    chats = folder if folder.name == "chats" else folder.parent
    if chats.name != "chats":
        return None
    try:
        marker = (chats.parent / ".project_root").read_text("utf-8", "surrogateescape").strip()
        return os.path.normpath(marker) if marker else None
    except OSError:
        return None


def open_session(session: str, cwd: str | None, home: str) -> Opened:
    """Go through a session's file once; raises SessionDamaged where the CLI would find no session in it."""
    info = locate_session(session, cwd, home)
    try:
        journal = open_journal(Path(info.file))
    except OSError as error:
        raise SessionDamaged(f"cannot be read: {error.strerror or error}", file=info.file) from None
    if journal.header is None:
        what = info.file if is_file(session) else info.id
        raise SessionDamaged(
            "Gemini CLI would find no session in it",
            file=info.file,
            hint=f"What is left of one: geminids sessions rescue {shlex.quote(what)}",
        )
    return Opened(info, journal)


def _readable(journal: Journal, info: SessionInfo) -> Iterator[Message]:
    try:
        yield from journal.messages
    except OSError as error:
        raise SessionDamaged(f"cannot be read: {error.strerror or error}", file=info.file) from None


def resume_line(session_id: str, project: str | None, home: str) -> str | None:
    """A command that works when it is pasted; None where it is not known which folder the session is of."""
    if not is_session_id(session_id) or project is None:
        return None
    words = ["geminids", "run"]
    if home != "user":
        words += ["--home", home]
    if not _is_here(project):
        words += ["--cwd", project]
    return clean(shlex.join([*words, "--resume", session_id])) + ' "…"'


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False


def fork_session(session: str, at: str | None, cwd: str | None, home: str) -> tuple[SessionInfo, SessionInfo]:
    """The copy and its original."""
    opened = open_session(session, cwd, home)
    last = None if at is None else _message_id(at, (one.id for one in opened.messages), opened.info.id)
    made = fork(Path(opened.info.file), at=last, home=home)
    return msgspec.structs.replace(made, project=opened.info.project), opened.info


def _message_id(at: str, ids: Iterable[str], session: str) -> str:
    alike = [one for one in ids if one.startswith(at)]
    if at in alike or len(alike) == 1:
        return at if at in alike else alike[0]
    if alike and at:
        several = ", ".join(alike[:5])
        raise SessionError(
            f"{len(alike)} messages of {session} begin with {at}: {several}", hint="Give more of the id."
        )
    raise SessionError(
        f"the session {session} has no message {at[:100]}",
        hint=f"Their ids: geminids sessions show {session} --json",
    )


def rescue_session(session: str, cwd: str | None, home: str, *, rewound: bool) -> tuple[Rescue, str | None]:
    """The new session, and the project that it is of, where that is known."""
    info = locate_session(session, cwd, home)
    if is_file(session) or not is_session_id(info.id):
        # One that lies among the sessions of a project stays there, unless another project is named.
        project = cwd if project_of(info) else cwd or "."
        made = rescue(Path(info.file), project, home=home, rewound=rewound)
    else:
        made = rescue(info.id, info.project, home=home, rewound=rewound)
    return made, project_of(locate_session(made.file, None, home))
