"""Find, open, fork and rescue the session that an argument of a command names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from geminids.errors import SessionDamaged, SessionError, SessionNotFound
from geminids.gemini.protocol.journal.records import Header, StoredMessage
from geminids.gemini.protocol.journal.stream import JournalFile, open_journal
from geminids.ids import is_session_id
from geminids.sessions.finder import SessionInfo
from geminids.sessions.loader import locate
from geminids.sessions.repair.rescue import Rescue, fork, rescue
from geminids.sessions.transcript import Agents

__all__ = [
    "OpenSession",
    "fork_session",
    "is_file",
    "locate_session",
    "open_session",
    "project_of",
    "rescue_session",
    "resume_line",
]


class OpenSession(msgspec.Struct, frozen=True):
    """A session whose file was opened. The messages are read from the file one by one."""

    info: SessionInfo
    journal: JournalFile

    @property
    def header(self) -> Header:
        assert self.journal.header is not None
        return self.journal.header

    @property
    def messages(self) -> Iterator[StoredMessage]:
        return _readable(self.journal, self.info)

    @property
    def agents(self) -> Agents:
        return Agents(Path(self.info.file), self.header.session_id)


def is_file(session: str) -> bool:
    """Return whether the command-line argument `session` is the name of a file, not a session id."""
    return os.sep in session or session.endswith((".json", ".jsonl"))


def locate_session(session: str, cwd: str | None, home: str) -> SessionInfo:
    """Find a stored session by its id, the start of its id, `latest`, or its file.

    With `cwd`, search only the sessions of that folder. Without `cwd`, search the sessions of the
    current folder first, then those of all folders. But `latest` is searched only in the current
    folder. Raises `click.UsageError` if `session` has none of these four forms, and `SessionError`
    if no session is found.
    """
    if is_file(session):
        info = locate(Path(session))
        return msgspec.structs.replace(info, project=project_of(info))
    if not is_session_id(session):
        raise click.UsageError(
            f"{session!r} is not a session: use a session id (at least its first six characters), latest, or a file"
        )
    if cwd is not None or session == "latest":
        return locate(session, os.path.abspath(cwd or "."), home=home)
    try:
        return locate(session, os.getcwd(), home=home)
    except SessionNotFound as error:
        if any(session_id.startswith(session) for session_id in error.nearest):
            raise  # several sessions of the current folder match
    return locate(session, home=home)


def project_of(info: SessionInfo) -> str | None:
    """Return the folder of the project that a session belongs to; None if the folder is unknown.

    If `info` does not contain the folder, read it from a file that the CLI stores next to its
    sessions.
    """
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


def open_session(session: str, cwd: str | None, home: str) -> OpenSession:
    """Find a session and open its file. `session` is a session id, the start of an id, `latest` or
    a file.

    Raises SessionDamaged if the file cannot be read, or if it contains no session that the CLI
    would find.
    """
    info = locate_session(session, cwd, home)
    try:
        journal = open_journal(Path(info.file))
    except OSError as error:
        raise SessionDamaged(
            f"cannot be read: {error.strerror or error}",
            file=info.file,
            hint="Check the permissions of the file.",
        ) from None
    if journal.header is None:
        name = info.file if is_file(session) else info.id
        raise SessionDamaged(
            "Gemini CLI would find no session in this file",
            file=info.file,
            hint=f"Recover its messages: geminids sessions rescue {shlex.quote(name)}",
        )
    return OpenSession(info, journal)


def _readable(journal: JournalFile, info: SessionInfo) -> Iterator[StoredMessage]:
    try:
        yield from journal.messages
    except OSError as error:
        raise SessionDamaged(
            f"cannot be read: {error.strerror or error}",
            file=info.file,
            hint="Check the permissions of the file.",
        ) from None


def resume_line(session_id: str, project: str | None, home: str) -> str | None:
    """Return the command that resumes a session, with "…" in place of the prompt.

    Return None if the session has no valid id or its project is unknown.
    """
    if not is_session_id(session_id) or project is None:
        return None
    from geminids.views.terminal.footer import resume_command_line  # imported late: it loads rich

    command = resume_command_line("run", session_id, offline=False, home=home, cwd=project)
    return f'{command} "…"'


def fork_session(session: str, at: str | None, cwd: str | None, home: str) -> tuple[SessionInfo, SessionInfo]:
    """Copy a session to a new session, and return the copy and the original.

    `at` selects the last message to copy, by its id or by the first characters of its id. If `at`
    is None, all messages are copied.
    """
    opened = open_session(session, cwd, home)
    ids = (message.id for message in opened.messages)
    last = None if at is None else _message_id(at, ids, opened.info.id)
    copy = fork(Path(opened.info.file), at=last, home=home)
    return msgspec.structs.replace(copy, project=opened.info.project), opened.info


def _message_id(at: str, ids: Iterable[str], session: str) -> str:
    matches = [message_id for message_id in ids if message_id.startswith(at)]
    if at in matches or len(matches) == 1:
        return at if at in matches else matches[0]
    if matches and at:
        several = ", ".join(matches[:5])
        raise SessionError(
            f"{at} is ambiguous: the ids of {len(matches)} messages begin with it: {several}",
            hint="Use more characters of the message id.",
        )
    raise SessionError(
        f"the session {session} has no message {at[:100]}",
        hint=f"List the message ids: geminids sessions show {session} --json",
    )


def rescue_session(session: str, cwd: str | None, home: str, *, rewound: bool) -> tuple[Rescue, str | None]:
    """Recover the messages of a damaged session into a new session.

    Return the result, and the folder of the project that the new session belongs to. The folder is
    None if it is unknown. With `rewound`, messages that were removed with `/rewind` are recovered
    too.
    """
    info = locate_session(session, cwd, home)
    if is_file(session) or not is_session_id(info.id):
        # If the file is in the session folder of a project, the new session stays in this project,
        # unless `cwd` is set.
        project = cwd if project_of(info) else cwd or "."
        rescued = rescue(Path(info.file), project, home=home, rewound=rewound)
    else:
        rescued = rescue(info.id, info.project, home=home, rewound=rewound)
    return rescued, project_of(locate_session(rescued.file, None, home))
