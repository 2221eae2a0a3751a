"""Find the folders in which the CLI stores the sessions of a project. These folders differ between
releases of the CLI.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from geminids.config.paths import SOURCE, Places
from geminids.errors import SessionError

__all__ = ["Folder", "chat_folders", "home_of", "project_hash", "project_paths", "read_regular_file"]

_HASH = re.compile(r"[0-9a-f]{64}")
# How many folder names to try for a project before all folders are scanned. The folders `app`,
# `app-1` ... can belong to other projects named `app`.
_MAX_SLUGS = 10


class Folder(msgspec.Struct, frozen=True):
    """A folder (`chats`) with the session files of one project. `project` is the path of the
    project.

    `hashed` is True if the folder was made by a release of the CLI before 0.29. Then the name of
    its parent folder is a hash of the project's path. `project` is None if the project is unknown,
    for example because no known project has this hash.
    """

    chats: Path
    project: str | None
    hashed: bool


def chat_folders(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str = "user",
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    quick: bool = False,
) -> list[Folder]:
    """Return the folders with the sessions of one project. If `project` is None, return those of
    all projects.

    Folders of newer CLI releases come first. With `quick` and a `project`, return only the folders
    whose names the CLI derives from the project's path. If no such folder belongs to the project,
    scan all folders.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    gemini = home_of(home, environ, places) / ".gemini"
    wanted = None if project is None else project_paths(project)
    if quick and wanted is not None and (usual := list(_usual_folders(gemini, wanted))):
        return usual
    folders = _scan(gemini, wanted, lambda: _registered_slugs(gemini, places))
    return sorted(folders, key=lambda folder: (folder.hashed, str(folder.chats)))


def home_of(home: str, environ: Mapping[str, str], places: Places) -> Path:
    """Return the home folder for a value of the option `home`: `user`, `isolated`, or the path of a
    folder. The sessions of runs with this value are below the returned folder.
    """
    if home == "isolated":
        return places.homes / "isolated"
    if home != "user":
        return Path(home).absolute()
    path = environ.get(SOURCE) or environ.get("GEMINI_CLI_HOME") or environ.get("HOME")
    return Path(path or os.path.expanduser("~")).absolute()


def project_paths(project: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the paths under which the CLI may store the sessions of a project: the path with
    symbolic links resolved, and the path with the links kept. Raises `SessionError` if the path
    contains a NUL character.
    """
    try:
        path = os.path.abspath(os.fspath(project))
        return tuple(dict.fromkeys((os.path.realpath(path), path)))
    except ValueError:
        raise SessionError(
            "the path of the project contains a NUL character", hint="Remove the NUL character."
        ) from None


def project_hash(project: str) -> str:
    """Return the hash of a project's path, which the CLI stores as `projectHash`."""
    from hashlib import sha256  # imported late: it loads OpenSSL, 16 ms

    return sha256(project.encode("utf-8", "surrogateescape")).hexdigest()


def _usual_folders(gemini: Path, wanted: tuple[str, ...]) -> Iterator[Folder]:
    for path in wanted:
        slug = _slug(path)
        for number in range(_MAX_SLUGS):
            place = gemini / "tmp" / (f"{slug}-{number}" if number else slug)
            if not place.is_dir():
                break
            if _owner(gemini, place.name) == path:
                yield Folder(place / "chats", path, False)


def _slug(path: str) -> str:
    """Return the folder name that the CLI derives from the path of a project (`slugify` in
    projectRegistry.ts of Gemini CLI).
    """
    return re.sub("[^a-z0-9]+", "-", os.path.basename(path).lower()).strip("-") or "project"


def _scan(
    gemini: Path, wanted: tuple[str, ...] | None, registered: Callable[[], dict[str, str]]
) -> Iterator[Folder]:
    try:
        names = sorted(os.listdir(gemini / "tmp"))
    except OSError:
        return
    hashed = [name for name in names if _HASH.fullmatch(name)]
    owners = {name: _owner(gemini, name) for name in names if not _HASH.fullmatch(name)}
    known: dict[str, str] = {}
    if None in owners.values() or (hashed and wanted is None):
        known = registered()
    for name, owner in owners.items():
        project = owner or next((path for path, slug in known.items() if slug == name), None)
        if wanted is None or project in wanted:
            yield Folder(gemini / "tmp" / name / "chats", project, False)
    if hashed:
        paths = wanted or (*known, *(owner for owner in owners.values() if owner))
        project_by_hash = {project_hash(path): path for path in paths}
        for name in hashed:
            if wanted is None or name in project_by_hash:
                yield Folder(gemini / "tmp" / name / "chats", project_by_hash.get(name), True)


def _owner(gemini: Path, slug: str) -> str | None:
    """Return the path of the project whose sessions are in the folder `slug`; None if it is
    unknown.

    The CLI writes this path to the file `.project_root` in the folder.
    """
    for tree in ("tmp", "history"):
        try:
            with open(gemini / tree / slug / ".project_root", "rb") as marker:
                text = marker.read(65536).decode("utf-8", "surrogateescape").strip()
        except OSError:
            continue
        if text:
            return os.path.normpath(text)
    return None


def _registered_slugs(gemini: Path, places: Places) -> dict[str, str]:
    """Return the name of the session folder of each project that the CLI has registered. The result
    is a dict with the paths of the projects as keys.

    The CLI registers projects in the file `projects.json` of a home. This function reads the file
    in `gemini` (the folder `.gemini` of a home). It also reads the files of all private homes that
    use the same folder for their sessions.
    """
    homes = [gemini]
    try:
        private = [places.homes / name / ".gemini" for name in sorted(os.listdir(places.homes))]
    except OSError:
        private = []
    homes += [
        other for other in private if os.path.realpath(other / "tmp") == os.path.realpath(gemini / "tmp")
    ]
    slugs: dict[str, str] = {}
    for folder in homes:
        try:
            registry = msgspec.json.decode((folder / "projects.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        projects = registry.get("projects") if isinstance(registry, dict) else None
        for path, slug in projects.items() if isinstance(projects, dict) else ():
            if isinstance(slug, str):
                slugs.setdefault(os.path.normpath(path), slug)
    return slugs


def read_regular_file(path: str | Path) -> bytes:
    """Return the content of a regular file. Raises `OSError` if the path is a FIFO, a folder or
    another special file, or if it cannot be read.
    """
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("not a regular file")
        return file.read()
