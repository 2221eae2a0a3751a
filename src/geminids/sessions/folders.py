"""The folders in which the CLI stores the sessions of a project: three generations, several homes."""

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
# How many slugs to try before scanning all folders: `app`, `app-1` ... may belong to other projects.
_MAX_SLUGS = 10


class Folder(msgspec.Struct, frozen=True):
    """One `chats` folder. `hashed`: made by a release before 0.29, so that `project` may be unknown."""

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
    """Return the folders with sessions of a project (None: of all), those of newer releases first.

    `quick` looks only for folders with the usual name, and scans all folders only if there is none.
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
    """Return the home that holds the sessions, like `launch.home.source_home` but without settings."""
    if home == "isolated":
        return places.homes / "isolated"
    if home != "user":
        return Path(home).absolute()
    path = environ.get(SOURCE) or environ.get("GEMINI_CLI_HOME") or environ.get("HOME")
    return Path(path or os.path.expanduser("~")).absolute()


def project_paths(project: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the paths under which the CLI may know a project: with links resolved, and as given."""
    try:
        given = os.path.abspath(os.fspath(project))
        return tuple(dict.fromkeys((os.path.realpath(given), given)))
    except ValueError:
        raise SessionError("the path of the project contains a NUL character") from None


def project_hash(project: str) -> str:
    """Return the `projectHash` of the CLI."""
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
    """Make the slug like the CLI does (projectRegistry.ts, slugify)."""
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
        of_hash = {project_hash(path): path for path in paths}
        for name in hashed:
            if wanted is None or name in of_hash:
                yield Folder(gemini / "tmp" / name / "chats", of_hash.get(name), True)


def _owner(gemini: Path, slug: str) -> str | None:
    """Return the project in the marker file of a slug."""
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
    """Return projects and their slugs, from the registries of this home and of private homes linked to it."""
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
    """Read a regular file; raises `OSError` for anything else."""
    # Without O_NONBLOCK, opening a FIFO that has a session's name would block.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("not a regular file")
        return file.read()
