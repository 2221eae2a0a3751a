"""Write a conversation as a new session: `rescue` what the CLI refuses to load, `fork` a session."""

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
from geminids.sessions.repair.salvage import Haul, LostPiece, salvage
from geminids.sessions.repair.write import write_session

__all__ = ["Rescue", "fork", "rescue"]


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a rescue: the new session, and what is in it."""

    session_id: str
    file: str
    sources: tuple[str, ...]
    recovered: int
    """Messages that were found. The new session can have fewer: results of tools that stood twice stand once."""
    brought_back: int
    """Of these, how many the CLI would not have shown: behind a checkpoint, or in a file that it refuses."""
    partial: tuple[str, ...]
    """Of these, the ids of those that lack their end."""
    taken_back: int
    """Messages that the user had taken back (`/rewind`), left out unless asked for."""
    lost: tuple[LostPiece, ...]
    """Pieces of the first source that could not be read as a whole record."""


def rescue(
    session: str | Path,
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    rewound: bool = False,
) -> Rescue:
    """Write all that is left of a session as a new one that the CLI resumes. The files of the old one stay.

    A file (a Path) that lies elsewhere is put into the sessions of `project`. Raises SessionNotFound where there
    is nothing, and SessionDamaged where nothing in it can be resumed.
    """
    info = locate(session, project, home=home, environ=environ, places=places)
    sources = _sources(info)
    haul = Haul()
    for source in reversed(sources):
        haul.lost.clear()
        salvage(read_file(source), haul)
    messages = _in_order(haul, rewound)
    if not any(message.is_resumable for message in messages):
        raise SessionDamaged("nothing in it can be resumed", file=info.file)
    chats, of = _destination(info, project, home, environ, places)
    known = haul.fields.get("projectHash")
    fields = {"projectHash": project_hash(of) if of else known if isinstance(known, str) else "unknown"}
    session_id, file = write_session(chats, fields, messages, legacy=sources[0].suffix == ".json")
    shown = {message.id for message in replay(read_file(sources[0]).split(b"\n")).messages}
    return Rescue(
        session_id=session_id,
        file=str(file),
        sources=tuple(map(str, sources)),
        recovered=len(messages),
        brought_back=sum(info.damaged or message.id not in shown for message in messages),
        partial=tuple(message.id for message in messages if message.id in haul.partial),
        taken_back=0 if rewound else len(haul.rewound),
        lost=tuple(haul.lost),
    )


def _sources(info: SessionInfo) -> list[Path]:
    """The session's file, others with its id, and what the CLI has put aside as unreadable."""
    first = Path(info.file)
    try:
        aside = sorted(first.parent.glob(f"{_escaped(first.name)}.unreadable-*"))
    except OSError:
        aside = []
    return [first, *map(Path, info.others), *(file for file in aside if file.is_file())]


def _escaped(name: str) -> str:
    from glob import escape

    return escape(name)


def _in_order(haul: Haul, rewound: bool) -> list[Message]:
    return [message for name, message in haul.messages.items() if rewound or name not in haul.rewound]


def _destination(
    info: SessionInfo,
    project: str | os.PathLike[str] | None,
    home: str,
    environ: Mapping[str, str] | None,
    places: Places | None,
) -> tuple[Path, str | None]:
    """The `chats` folder for the new session, and its project where that is known."""
    parent = Path(info.file).parent
    own = parent if parent.name == "chats" else parent.parent
    if own.name == "chats" and (project is None or info.project is not None):
        return own, info.project or _marked(own)
    if project is None:
        raise SessionError(
            f"{info.file} lies in no project's folder of sessions", hint="Say for which project it is."
        )
    folders = chat_folders(project, home=home, environ=environ, places=places)
    if not folders:
        raise SessionError(
            f"{os.fspath(project)} has no folder for sessions yet", hint="Start a session there first."
        )
    return folders[0].chats, folders[0].project or project_paths(project)[0]


def _marked(chats: Path) -> str | None:
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
    """Copy a session to a new one in the same project; `at` is the id of the last message that it shall have.

    The copy has the form of the original, so that the release that made it can resume it. Raises SessionError
    where there is no such message, or nothing that could be resumed is left.
    """
    source = load(session, project, home=home, environ=environ, places=places)
    messages = _up_to(source, at)
    if not any(message.is_resumable for message in messages):
        raise SessionError("the copy would have nothing that the CLI could resume")
    file = Path(source.info.file)
    header = source.header
    fields = {
        "projectHash": (header.project_hash if header else "") or _hash_of(source.info),
        **({"directories": header.directories} if header and header.directories else {}),
        **({"summary": header.summary} if header and header.summary and at is None else {}),
    }
    _, made = write_session(_main_folder(file), fields, messages, legacy=file.suffix == ".json")
    return info_of(made, source.info.project)


def _up_to(source: Session, at: str | None) -> list[Message]:
    """In their true order: the calls of later answers shall not come along."""
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
    """The `chats` folder; a subagent's file lies one level below it."""
    return file.parent if file.parent.name == "chats" else file.parent.parent
