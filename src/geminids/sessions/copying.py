"""A copy of a session under a new id, whole or up to one message: the original stays as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from geminids.config.places import Places
from geminids.errors import SessionError
from geminids.sessions.folders import project_hash
from geminids.sessions.listing import SessionInfo, info_of
from geminids.sessions.loading import Session, load
from geminids.sessions.order import in_true_order
from geminids.sessions.write import write_session
from geminids.wire.journal import Message

__all__ = ["fork"]


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
