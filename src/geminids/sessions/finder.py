"""Find the stored sessions of a project, and determine for each session whether the CLI can resume
it.
"""

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
from geminids.sessions.file_summary import parse_time, summarize_file
from geminids.sessions.folders import Folder, chat_folders

__all__ = ["SessionInfo", "exists", "find", "find_by_id", "info_of", "journal_of", "session_files"]

Generation = Literal["sha256_json", "slug_json", "slug_journal"]
_NAME = re.compile(r"session-.*?([A-Za-z0-9_-]{8})\.jsonl?", re.DOTALL)


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a stored session. Only the start and the end of the session file were read
    for it.

    A field is None if the value is not in these parts of the file.
    """

    id: str
    """The id of the session. For a damaged file, it is only the first eight characters of the id,
    taken from the file name."""
    file: str
    project: str | None
    generation: Generation
    started: datetime | None
    updated: datetime
    title: str | None
    messages: int | None
    size: int
    kind: str
    """`main` for a session of the user, or `subagent`."""
    resumable: bool | None
    """Whether the CLI can resume the session with its option `--resume`; None if unknown."""
    damaged: bool = False
    """Whether the file is damaged, so that the CLI would find no session in it."""
    others: tuple[str, ...] = ()
    """Other files with the same session id, which the CLI ignores."""
    last_started: str = ""
    last_updated: str = ""
    """`last_started` and `last_updated` are the last start time and the last time of an update in
    the file. The CLI uses `last_started` to find the session `latest`, and `last_updated` to choose
    between files with the same id.
    """


def find(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    limit: int | None = None,
    subagents: bool = False,
) -> list[SessionInfo]:
    """Return the sessions of a project, the most recently changed one first. If `project` is None,
    return those of all projects.

    `home` is as in `Options.home`. `limit` is the maximum number of sessions. With `subagents`, the
    sessions of subagents are also returned. Damaged files raise no error.

    In the example, the folders do not exist, so there are no sessions:

    >>> find("/no/such/project", home="/no/such/home")
    []
    """
    folders = chat_folders(project, home=home, environ=environ, places=places)
    best: dict[tuple[str, str], SessionInfo] = {}
    for folder in folders:
        for info in _one_per_id(_infos(folder, session_files(folder, subagents))):
            if info.kind == "subagent" and not subagents:
                continue
            # A newer release copies the session folder of an older one and continues in the copy.
            # The old folder stays, so a session can be in both. Return the newer file.
            known = best.setdefault((info.project or str(folder.chats), info.id), info)
            if known.updated < info.updated:
                best[(info.project or str(folder.chats), info.id)] = info
    infos = sorted(best.values(), key=lambda info: (info.updated, info.file), reverse=True)
    return infos if limit is None else infos[: max(0, limit)]


def find_by_id(folders: Iterable[Folder], session_id: str) -> list[SessionInfo]:
    """Find the session with this full id in `folders`. Return one entry for each folder that
    contains it, the most recently changed one first.

    Only files whose names contain the start of the id are read.
    """
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
    """Return whether the CLI's option `--resume` would find this session in this project."""
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
    """Return the journal of a session: the `.jsonl` file to which a run of this session writes.
    Return None if there is no such file yet.

    When the CLI resumes a session, it first creates a second file without messages, but then writes
    new messages to the old file. This function returns the old file.
    """
    folders = chat_folders(project, home=home, environ=environ, places=places, quick=True)
    journals = [info for info in find_by_id(folders, session_id) if info.file.endswith(".jsonl")]
    return Path(journals[0].file) if journals else None


def info_of(file: Path, project: str | None = None) -> SessionInfo:
    """Return a description of the session in one file. The file can be in any folder.

    `project` is only copied to the result. Raises `OSError` if the file cannot be read.
    """
    folder = Folder(file.parent, project, len(file.parent.parent.name) == 64)
    return _info(folder, str(file))


def session_files(folder: Folder, subagents: bool) -> list[str]:
    """Return the paths of the session files in a folder, in the order in which the CLI reads them.

    With `subagents`, also return the session files in subfolders. These belong to subagents.
    """
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
            continue  # the file has been removed since it was listed, or is not readable


def _info(folder: Folder, file: str) -> SessionInfo:
    seen = summarize_file(file)
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
    """Return the part of the session id that is in the file name `name`. If the name does not have
    the usual form, return the name without its ending.
    """
    match = _NAME.fullmatch(name)
    return match.group(1) if match else name.rpartition(".")[0] or name


def _one_per_id(infos: Iterable[SessionInfo]) -> list[SessionInfo]:
    """Return one entry for each session id.

    If several files have the same session id, return the entry of the file that the CLI uses
    (`getSessionFiles` in sessionUtils.ts of Gemini CLI). If the CLI can use none of these files,
    return the entry of the largest undamaged file. If all are damaged, return the entry of the
    largest file.
    """
    by_id: dict[str, list[SessionInfo]] = {}
    for info in infos:
        by_id.setdefault(info.id, []).append(info)
    return [group[0] if len(group) == 1 else _choose(group) for group in by_id.values()]


def _choose(group: list[SessionInfo]) -> SessionInfo:
    usable = [info for info in group if info.resumable is not False]
    if usable:
        best = usable[0]
        for info in usable[1:]:
            best_time, time = parse_time(best.last_updated), parse_time(info.last_updated)
            if best_time is not None and time is not None and time > best_time:
                best = info
    else:
        best = max(group, key=lambda info: (not info.damaged, info.size))
    others = tuple(info.file for info in group if info is not best)
    return msgspec.structs.replace(best, others=others)
