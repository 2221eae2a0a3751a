"""A run's private folder: made when something must be written, and gone when the run is, however that ended."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from geminids.config.flock import FileLock
from geminids.config.places import Places, private_dir

__all__ = ["Scratch", "sweep"]

_PREFIX = "run-"
# Locked for as long as the host lives: a sweep tells the living from the dead by it, and trusts no pid.
_LOCK = "lock"
# Folders that had to be made elsewhere, each ended by a NUL, written down before they are made.
_ELSEWHERE = "elsewhere"


class Scratch:
    """Files of one run: policies, staged media, telemetry. Nothing is made before it is needed.

    `write` a file or take the `folder`; `close` removes it all and never raises.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._folder: Path | None = None
        self._lock: FileLock | None = None

    @property
    def made(self) -> bool:
        """Whether there is anything on the disk."""
        # In a fork the folder is the parent's, and so is the lock.
        return self._lock is not None and self._lock.is_held

    @property
    def folder(self) -> Path:
        """The folder, 0700, made now where it was not there yet; raises OSError where it cannot be."""
        if self._folder is None or not self.made:
            self._folder, self._lock = _make(private_dir(self._places.runs))
            _living.add(self)
        return self._folder

    def write(self, name: str, data: bytes | str) -> Path:
        """Write a file, 0600, that was not there before; raises OSError where it cannot be."""
        file = self.folder / name
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        return file

    def name_in(self, *, hidden: bool = True) -> str:
        """How a folder of this run is called in a place of the user's."""
        return f"{'.' if hidden else ''}geminids-{self.folder.name}"

    def folder_in(self, parent: Path, *, hidden: bool = True) -> Path:
        """A folder of this run, 0700, in a place of the user's; it goes when this one goes."""
        place = parent.absolute() / self.name_in(hidden=hidden)
        with open(self.folder / _ELSEWHERE, "ab") as note:
            note.write(os.fsencode(place) + b"\0")
        place.mkdir(mode=0o700)
        return place

    def close(self) -> None:
        """Remove it all. What cannot be removed now is left to the next run's sweep."""
        if self._folder is None or self._lock is None or not self.made:
            return
        folder, lock = self._folder, self._lock
        self._folder = self._lock = None
        _living.discard(self)
        try:
            _remove(folder)
        finally:
            lock.close()


def sweep(places: Places) -> int:
    """Remove what dead hosts have left, and say how many folders that were. One listing where there is nothing.

    >>> sweep(Places(Path("/no/such/place")))
    0
    """
    try:
        names = os.listdir(places.runs)
    except OSError:
        return 0
    return sum(_sweep_one(places.runs / name) for name in names if name.startswith(_PREFIX))


def _sweep_one(folder: Path) -> bool:
    try:
        lock = _take(folder)
    except OSError:
        return False  # a stranger's, or a file system without locks
    if lock is None:
        return False
    try:
        _remove(folder)
    finally:
        lock.close()
    return not folder.exists()


def _make(parent: Path) -> tuple[Path, FileLock]:
    """A new folder and its lock. Where a sweep came between the two steps, another name is taken."""
    while True:
        folder = parent / f"{_PREFIX}{os.urandom(8).hex()}"
        folder.mkdir(mode=0o700)
        lock = _take(folder)
        if lock is not None:
            return folder, lock


def _take(folder: Path) -> FileLock | None:
    """Take the folder's lock; None where another has it, or the folder went meanwhile."""
    try:
        return FileLock.take(folder / _LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove(folder: Path) -> None:
    for place in _noted(folder):
        _remove_tree(place)
    _remove_tree(folder)


def _noted(folder: Path) -> list[Path]:
    """The folders made elsewhere; only names that this folder gives are believed."""
    try:
        noted = (folder / _ELSEWHERE).read_bytes()
    except OSError:
        return []
    # One that was cut off by a death was not made yet.
    places = [Path(os.fsdecode(name)) for name in noted.split(b"\0")[:-1]]
    return [place for place in places if place.name.lstrip(".") == f"geminids-{folder.name}"]


def _remove_tree(folder: Path) -> None:
    import shutil  # imported late: a plain run needs it not

    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        # An agent can have taken the right to write from its folders.
        for place, _, _ in os.walk(folder):
            try:
                os.chmod(place, 0o700)
            except OSError:
                pass
        shutil.rmtree(folder, ignore_errors=True)


_living: set[Scratch] = set()


@atexit.register
def _close_all() -> None:
    """Runs that were launched and never entered have no end of their own."""
    for scratch in list(_living):
        scratch.close()
