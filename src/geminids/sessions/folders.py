"""Where the CLI keeps the sessions of a project: three generations, in the user's home and in ours."""

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
# How many slugs are tried before all folders are gone through: `app`, `app-1` ... are given to other projects.
_TRIED = 10


class Folder(msgspec.Struct, frozen=True):
    """One `chats` folder. `hashed`: of a release before 0.29; its project may then be unknown (None)."""

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
    """The folders that can hold sessions of this project (None: of all), those of newer releases first.

    `quick` is content with those that have the usual name, if there is one.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    gemini = home_of(home, environ, places) / ".gemini"
    wanted = None if project is None else project_paths(project)
    if quick and wanted is not None and (usual := list(_usual(gemini, wanted))):
        return usual
    found = list(_scan(gemini, wanted, lambda: _registered(gemini, places)))
    return sorted(found, key=lambda folder: (folder.hashed, str(folder.chats)))


def home_of(home: str, environ: Mapping[str, str], places: Places) -> Path:
    """The home in whose tree the sessions lie: as `launch.home.source_home`, whose settings are no matter here."""
    if home == "isolated":
        return places.homes / "isolated"
    if home != "user":
        return Path(home).absolute()
    named = environ.get(SOURCE) or environ.get("GEMINI_CLI_HOME") or environ.get("HOME")
    return Path(named or os.path.expanduser("~")).absolute()


def project_paths(project: str | os.PathLike[str]) -> tuple[str, ...]:
    """A project as the CLI may know it: without links, as Node sees its folder, and as it was given."""
    try:
        given = os.path.abspath(os.fspath(project))
        return tuple(dict.fromkeys((os.path.realpath(given), given)))
    except ValueError:
        raise SessionError("the project's path has a NUL in it") from None


def project_hash(project: str) -> str:
    """What the CLI calls `projectHash`."""
    from hashlib import sha256  # imported late: it loads OpenSSL, 16 ms

    return sha256(project.encode("utf-8", "surrogateescape")).hexdigest()


def _usual(gemini: Path, wanted: tuple[str, ...]) -> Iterator[Folder]:
    for path in wanted:
        slug = _slug(path)
        for number in range(_TRIED):
            place = gemini / "tmp" / (f"{slug}-{number}" if number else slug)
            if not place.is_dir():
                break
            if _owner(gemini, place.name) == path:
                yield Folder(place / "chats", path, False)


def _slug(path: str) -> str:
    """As the CLI makes it (projectRegistry.ts, slugify)."""
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
    """The project that a slug's marker names."""
    for tree in ("tmp", "history"):
        try:
            with open(gemini / tree / slug / ".project_root", "rb") as marker:
                text = marker.read(65536).decode("utf-8", "surrogateescape").strip()
        except OSError:
            continue
        if text:
            return os.path.normpath(text)
    return None


def _registered(gemini: Path, places: Places) -> dict[str, str]:
    """Projects and their slugs, from this home's registry and those of the private homes that lead into it."""
    homes = [gemini]
    try:
        private = [places.homes / name / ".gemini" for name in sorted(os.listdir(places.homes))]
    except OSError:
        private = []
    homes += [
        other for other in private if os.path.realpath(other / "tmp") == os.path.realpath(gemini / "tmp")
    ]
    found: dict[str, str] = {}
    for folder in homes:
        try:
            registry = msgspec.json.decode((folder / "projects.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        projects = registry.get("projects") if isinstance(registry, dict) else None
        for path, slug in projects.items() if isinstance(projects, dict) else ():
            if isinstance(slug, str):
                found.setdefault(os.path.normpath(path), slug)
    return found


def read_regular_file(path: str | Path) -> bytes:
    """The content of a regular file; raises `OSError` for anything else."""
    # Without O_NONBLOCK, opening a FIFO that has a session's name would block.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a file")
        return file.read()
