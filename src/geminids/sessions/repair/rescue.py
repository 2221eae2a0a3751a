"""Write a conversation as a new session: `rescue` a damaged session, or `fork` one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import SessionDamaged, SessionError
from geminids.gemini.protocol.journal.records import Message
from geminids.gemini.protocol.journal.replay import replay
from geminids.sessions.finder import SessionInfo, info_of
from geminids.sessions.folders import chat_folders, project_hash, project_paths
from geminids.sessions.loader import Session, load, locate, read_file
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.repair.salvage import LostPiece, Salvaged, salvage
from geminids.sessions.repair.write import write_session

__all__ = ["Rescue", "fork", "rescue"]


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rescue: the new session and its content."""

    session_id: str
    file: str
    sources: tuple[str, ...]
    recovered: int
    """Number of recovered messages. The new session may have fewer: duplicate tool results are removed."""
    brought_back: int
    """How many of these the CLI would not show: dropped by a checkpoint, or in a file that it rejects."""
    partial: tuple[str, ...]
    """The ids of those whose end is missing."""
    taken_back: int
    """Number of messages that the user took back (`/rewind`), omitted unless `rewound` is set."""
    lost: tuple[LostPiece, ...]
    """Pieces of the first source that are not a complete record."""


def rescue(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    rewound: bool = False,
) -> Rescue:
    """Write what is left of a session to a new one that the CLI can resume. The old files stay.

    The messages of a file (a Path) outside the session folders go to the sessions of `project`. Raises
    SessionNotFound if there is no session, and SessionDamaged if it has nothing to resume.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    sources = _sources(info)
    salvaged = Salvaged()
    for source in reversed(sources):
        salvaged.lost.clear()
        salvage(read_file(source), salvaged)
    messages = _in_order(salvaged, rewound)
    if not any(message.is_resumable for message in messages):
        raise SessionDamaged("contains no message that can be resumed", file=info.file)
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
    """Return the session's file, others with its id, and those that the CLI renamed as unreadable."""
    first = Path(info.file)
    try:
        unreadable = sorted(first.parent.glob(f"{_escaped(first.name)}.unreadable-*"))
    except OSError:
        unreadable = []
    return [first, *map(Path, info.others), *(file for file in unreadable if file.is_file())]


def _escaped(name: str) -> str:
    from glob import escape

    return escape(name)


def _in_order(salvaged: Salvaged, rewound: bool) -> list[Message]:
    return [message for name, message in salvaged.messages.items() if rewound or name not in salvaged.rewound]


def _destination(
    info: SessionInfo,
    project: str | os.PathLike[str] | None,
    home: str,
    environ: Mapping[str, str] | None,
    places: Places | None,
) -> tuple[Path, str | None]:
    """Return the `chats` folder for the new session, and its project if known."""
    parent = Path(info.file).parent
    own = parent if parent.name == "chats" else parent.parent
    if own.name == "chats" and (project is None or info.project is not None):
        return own, info.project or _project_in_marker(own)
    if project is None:
        raise SessionError(f"{info.file} is not in a session folder of a project", hint="Name the project.")
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if not folders:
        raise SessionError(
            f"{os.fspath(project)} has no session folder yet", hint="Start a session there first."
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
    """Copy a session to a new one in the same project, up to the message with the id `at`.

    The copy has the file format of the original, so that the same release can resume it. Raises
    SessionError if there is no such message, or if the copy would have nothing to resume.
    """
    source = load(session, project, home=home, environ=environ, places=places)
    messages = _up_to(source, at)
    if not any(message.is_resumable for message in messages):
        raise SessionError("the copy would have no message that the CLI can resume")
    file = Path(source.info.file)
    header = source.header
    fields = {
        "projectHash": (header.project_hash if header else "") or _hash_of(source.info),
        **({"directories": header.directories} if header and header.directories else {}),
        **({"summary": header.summary} if header and header.summary and at is None else {}),
    }
    _, copy = write_session(_main_folder(file), fields, messages, legacy=file.suffix == ".json")
    return info_of(copy, source.info.project)


def _up_to(source: Session, at: str | None) -> list[Message]:
    """Return the messages up to `at`, in their real order, so that calls of later answers are excluded."""
    messages = list(in_true_order(source.messages))
    if at is None:
        return messages
    for number, message in enumerate(messages):
        if message.id == at:
            return messages[: number + 1]
    raise SessionError(f"the session {source.id} has no message {at[:200]!r}")


def _hash_of(info: SessionInfo) -> str:
    return project_hash(info.project or str(Path(info.file).parent.parent))


def _main_folder(file: Path) -> Path:
    """Return the `chats` folder. A subagent's file is one level below it."""
    return file.parent if file.parent.name == "chats" else file.parent.parent
