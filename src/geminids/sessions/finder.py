"""Find stored sessions: the newest first, each once, and whether the CLI can resume it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places
from geminids.ids import is_session_id
from geminids.sessions.folders import Folder, chat_folders
from geminids.sessions.peek import parse_time, peek

__all__ = ["SessionInfo", "exists", "find", "find_by_id", "info_of", "journal_of", "session_files"]

Generation = Literal["sha256_json", "slug_json", "slug_journal"]
_NAME = re.compile(r"session-.*?([A-Za-z0-9_-]{8})\.jsonl?", re.DOTALL)


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One stored session. Fields that the start and the end of its file do not show are None."""

    id: str
    """The full id; for a `damaged` file, the eight characters of it that are in the file name."""
    file: str
    project: str | None
    generation: Generation
    started: datetime | None
    updated: datetime
    title: str | None
    messages: int | None
    size: int
    kind: str
    """`main`, or `subagent`."""
    resumable: bool | None
    """Whether the CLI's `--resume` accepts it."""
    damaged: bool = False
    """Whether the CLI would find no session in the file."""
    others: tuple[str, ...] = ()
    """Further files with this id, which the CLI ignores."""
    last_started: str = ""
    last_updated: str = ""
    """Times in the last header of the file. The CLI uses them to find `latest`, and to choose between
    files with the same id."""


def find(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    limit: int | None = None,
    subagents: bool = False,
) -> list[SessionInfo]:
    """List the sessions of a project, or of all projects, the last changed one first.

    Never raises, whatever the files contain. `subagents` also lists the sessions of subagents.

    >>> find("/no/such/project", home="/no/such/home")
    []
    """
    folders = chat_folders(project, home=home, environ=environ, places=places)
    best: dict[tuple[str, str], SessionInfo] = {}
    for folder in folders:
        for info in _one_per_id(_infos(folder, session_files(folder, subagents))):
            if info.kind == "subagent" and not subagents:
                continue
            # A newer release copies the folder of an older one and continues in the copy; the old one stays.
            known = best.setdefault((info.project or str(folder.chats), info.id), info)
            if known.updated < info.updated:
                best[(info.project or str(folder.chats), info.id)] = info
    infos = sorted(best.values(), key=lambda info: (info.updated, info.file), reverse=True)
    return infos if limit is None else infos[: max(0, limit)]


def find_by_id(folders: Iterable[Folder], session_id: str) -> list[SessionInfo]:
    """Find the session with this full id, by file names only."""
    endings = (f"-{session_id[:8]}.json", f"-{session_id[:8]}.jsonl")
    matches: list[SessionInfo] = []
    for folder in folders:
        files = [file for file in session_files(folder, False) if file.endswith(endings)]
        matches += [info for info in _one_per_id(_infos(folder, files)) if info.id == session_id]
    return sorted(matches, key=lambda info: info.updated, reverse=True)


def exists(
    session_id: str,
    project: str | os.PathLike[str],
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> bool:
    """Whether the CLI's `--resume` would find this session in this project.

    It must be fast: each resumed run calls it.
    """
    if not is_session_id(session_id):
        return False
    for quick in (True, False):
        folders = chat_folders(project, home=home, environ=environ, places=places, quick=quick)
        if any(info.resumable is not False for info in find_by_id(folders, session_id)):
            return True
    return False


def journal_of(
    session_id: str,
    project: str | os.PathLike[str],
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Path | None:
    """Return the `.jsonl` file that a run with this session writes, for a Follower; None if it is missing.

    A resumed session continues in the file with its conversation, not in the stub that the CLI
    creates first.
    """
    folders = chat_folders(project, home=home, environ=environ, places=places, quick=True)
    journals = [info for info in find_by_id(folders, session_id) if info.file.endswith(".jsonl")]
    return Path(journals[0].file) if journals else None


def info_of(file: Path, project: str | None = None) -> SessionInfo:
    """Describe one session file in any folder; raises OSError if it cannot be read."""
    folder = Folder(file.parent, project, len(file.parent.parent.name) == 64)
    return _info(folder, str(file))


def session_files(folder: Folder, subagents: bool) -> list[str]:
    """List the session files of a folder in the CLI's order. Files of subagents are in sub-folders."""
    files: list[str] = []
    try:
        with os.scandir(folder.chats) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("session-") and name.endswith((".json", ".jsonl")):
                    files.append(entry.path)
                elif subagents and not name.startswith(".") and entry.is_dir():
                    files += [file.path for file in os.scandir(entry.path) if file.name.endswith(".jsonl")]
    except OSError:
        pass
    return sorted(files)


def _infos(folder: Folder, files: Iterable[str]) -> Iterator[SessionInfo]:
    for file in files:
        try:
            yield _info(folder, file)
        except OSError:
            continue  # removed in the meantime, or not readable


def _info(folder: Folder, file: str) -> SessionInfo:
    seen = peek(file)
    name = os.path.basename(file)
    kind = seen.kind or ("main" if name.startswith("session-") else "subagent")
    return SessionInfo(
        id=seen.session_id or _short_id(name),
        file=file,
        project=folder.project,
        generation="slug_journal"
        if name.endswith(".jsonl")
        else "sha256_json"
        if folder.hashed
        else "slug_json",
        started=seen.started,
        updated=seen.updated,
        title=seen.title,
        messages=seen.messages,
        size=seen.size,
        kind=kind,
        resumable=seen.resumable if kind != "subagent" else False,
        damaged=seen.damaged,
        last_started=seen.last_started,
        last_updated=seen.last_updated,
    )


def _short_id(name: str) -> str:
    """Return the part of the id that is in the file name."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match else name.rpartition(".")[0] or name


def _one_per_id(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """Keep one file per id: the one that the CLI uses (sessionUtils.ts, getSessionFiles), else the largest."""
    by_id: dict[str, list[SessionInfo]] = {}
    for info in infos:
        by_id.setdefault(info.id, []).append(info)
    return [group[0] if len(group) == 1 else _choose(group) for group in by_id.values()]


def _choose(group: list[SessionInfo]) -> SessionInfo:
    usable = [info for info in group if info.resumable is not False]
    if usable:
        best = usable[0]
        for info in usable[1:]:
            ours, theirs = parse_time(best.last_updated), parse_time(info.last_updated)
            if ours is not None and theirs is not None and theirs > ours:
                best = info
    else:
        best = max(group, key=lambda info: (not info.damaged, info.size))
    others = tuple(info.file for info in group if info is not best)
    return msgspec.structs.replace(best, others=others)
