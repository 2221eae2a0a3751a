"""Copy a conversation to a new session. `rescue` recovers the messages of a damaged session; `fork`
copies an intact session.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from glob import escape
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import SessionDamaged, SessionError
from geminids.gemini.protocol.journal.records import StoredMessage
from geminids.gemini.protocol.journal.replay import replay
from geminids.sessions.finder import SessionInfo, info_of
from geminids.sessions.folders import chat_folders, project_hash, project_paths
from geminids.sessions.loader import Session, load, locate, read_file
from geminids.sessions.repair.read_damaged import LostPiece, Salvaged, read_damaged
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.repair.write_session import write_session

__all__ = ["Rescue", "fork", "rescue"]


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `rescue`: the new session, and what was recovered.

    `session_id` and `file` belong to the new session. `sources` are the files that were read.
    """

    session_id: str
    file: str
    sources: tuple[str, ...]
    recovered: int
    """The number of recovered messages.

    The new session can have fewer messages, because duplicate tool results are removed.
    """
    brought_back: int
    """How many of the recovered messages the CLI no longer shows in the old session.

    A later record of the file has removed them, or the CLI does not accept the file.
    """
    partial: tuple[str, ...]
    """The ids of recovered messages whose end is missing."""
    taken_back: int
    """How many messages were left out because the user had removed them with `/rewind`."""
    lost: tuple[LostPiece, ...]
    """The parts of the first file in `sources` that are not a complete record."""


def rescue(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    rewound: bool = False,
) -> Rescue:
    """Recover all messages of a damaged session that can be found, and write them to a new session,
    which the CLI can resume.

    The old files do not change. With `rewound`, messages that the user removed with `/rewind` are
    also recovered. If `session` is the `Path` of a file outside the CLI's session folders,
    `project` is needed: the new session then belongs to this project.

    Raises `SessionNotFound` if there is no such session, or `SessionError` if there is no folder
    for the new session. Raises `SessionDamaged` if neither a prompt to the model nor an answer is
    found, because the CLI could not resume a session without them.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    sources = _sources(info)
    salvaged = Salvaged()
    for source in reversed(sources):
        salvaged.lost.clear()
        read_damaged(read_file(source), salvaged)
    messages = _in_order(salvaged, rewound)
    if not any(message.is_resumable for message in messages):
        raise SessionDamaged(
            "contains no prompt to the model and no answer, so the CLI could not resume a copy",
            file=info.file,
            hint="Start a new session: there is nothing to recover in this file.",
        )
    chats, owner = _destination(info, project, home, environ, places)
    known = salvaged.fields.get("projectHash")
    fields = {"projectHash": project_hash(owner) if owner else known if isinstance(known, str) else "unknown"}
    session_id, file = write_session(chats, fields, messages, legacy=sources[0].suffix == ".json")
    shown = {message.id for message in replay(read_file(sources[0]).split(b"\n")).messages}
    return Rescue(
        session_id=session_id,
        file=str(file),
        sources=tuple(map(str, sources)),
        recovered=len(messages),
        brought_back=sum(info.damaged or message.id not in shown for message in messages),
        partial=tuple(message.id for message in messages if message.id in salvaged.partial),
        taken_back=0 if rewound else len(salvaged.rewound),
        lost=tuple(salvaged.lost),
    )


def _sources(info: SessionInfo) -> list[Path]:
    """Return all files that can contain messages of a session: its own file, other files with the
    same session id, and copies that the CLI renamed.

    The CLI renames a session file to `.unreadable-…` if it cannot read the file.
    """
    first = Path(info.file)
    try:
        unreadable = sorted(first.parent.glob(f"{escape(first.name)}.unreadable-*"))
    except OSError:
        unreadable = []
    return [first, *map(Path, info.others), *(file for file in unreadable if file.is_file())]


def _in_order(salvaged: Salvaged, rewound: bool) -> list[StoredMessage]:
    return [message for name, message in salvaged.messages.items() if rewound or name not in salvaged.rewound]


def _destination(
    info: SessionInfo,
    project: str | os.PathLike[str] | None,
    home: str,
    environ: Mapping[str, str] | None,
    places: Places | None,
) -> tuple[Path, str | None]:
    """Return the folder for the new session file, and the path of the project that this folder
    belongs to (None if the project is unknown).

    Raises `SessionError` if there is no folder for the new session file.
    """
    parent = Path(info.file).parent
    own = parent if parent.name == "chats" else parent.parent
    if own.name == "chats" and (project is None or info.project is not None):
        return own, info.project or _project_in_marker(own)
    if project is None:
        raise SessionError(
            f"the project of {info.file} is unknown: the file is not in the session folder of a project",
            hint="Give the folder of the project for the new session (`project`, or --cwd on the command line).",
        )
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if not folders:
        raise SessionError(
            f"{os.fspath(project)} has no session folder yet",
            hint="Start a session in this folder first, for example with `geminids run`.",
        )
    return folders[0].chats, folders[0].project or project_paths(project)[0]


def _project_in_marker(chats: Path) -> str | None:
    try:
        return (chats.parent / ".project_root").read_text("utf-8", "surrogateescape").strip() or None
    except OSError:
        return None


def fork(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    at: str | None = None,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> SessionInfo:
    """Copy a session to a new session in the same project, and return a description of the new
    session.

    If `at` is the id of a message, copy only the messages up to and including this message. The
    copy has the same file format as the original, so that the same release of the CLI can resume
    the copy.

    Raises `SessionError` if there is no message with the id `at`. Also raises `SessionError` if the
    copy would contain neither a prompt to the model nor an answer, because the CLI could not resume
    such a copy.
    """
    source = load(session, project, home=home, environ=environ, places=places)
    messages = _up_to(source, at)
    if not any(message.is_resumable for message in messages):
        raise SessionError(
            f"the session {source.id} was not copied: the copy would contain no prompt to the model "
            "and no answer, so the CLI could not resume the copy",
            hint="Copy up to a later message, or start a new session.",
        )
    file = Path(source.info.file)
    header = source.header
    fields = {
        "projectHash": (header.project_hash if header else "") or _hash_of(source.info),
        **({"directories": header.directories} if header and header.directories else {}),
        **({"summary": header.summary} if header and header.summary and at is None else {}),
    }
    _, copy = write_session(_main_folder(file), fields, messages, legacy=file.suffix == ".json")
    return info_of(copy, source.info.project)


def _up_to(source: Session, at: str | None) -> list[StoredMessage]:
    """Return the messages of a session in their real order, up to the message with the id `at`. If
    `at` is None, return all messages.

    A session file can have a tool call of a later answer in an earlier one. Each call is first moved
    to the answer in which the model made it.
    """
    messages = list(in_true_order(source.messages))
    if at is None:
        return messages
    for number, message in enumerate(messages):
        if message.id == at:
            return messages[: number + 1]
    raise SessionError(
        f"the session {source.id} has no message {at[:200]!r}",
        hint=f"List the message ids: geminids sessions show {source.id} --json",
    )


def _hash_of(info: SessionInfo) -> str:
    return project_hash(info.project or str(Path(info.file).parent.parent))


def _main_folder(file: Path) -> Path:
    """Return the folder that contains the session files of the project of `file`.

    The file of a subagent is in a subfolder of this folder.
    """
    return file.parent if file.parent.name == "chats" else file.parent.parent
