"""A run's private folder: made when something must be written, and removed when the run ends, however it ends."""

from __future__ import annotations

import atexit
import errno
import os
import time
from pathlib import Path

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir

__all__ = ["Scratch", "StagedFiles", "name_elsewhere", "new_scratch_name", "sweep"]

_PREFIX = "run-"
# Locked for as long as the host lives: a sweep tells the living from the dead by it, and trusts no pid.
_LOCK = "lock"
# Folders that had to be made elsewhere, each ended by a NUL, written down before they are made.
_ELSEWHERE = "elsewhere"
_SWEEP_TIMEOUT = 5.0


def new_scratch_name() -> str:
    """A name for a scratch folder that is made later."""
    return f"{_PREFIX}{os.urandom(8).hex()}"


def name_elsewhere(scratch: str, *, hidden: bool = True) -> str:
    """The name of a folder of this run in a place of the user's."""
    return f"{'.' if hidden else ''}geminids-{scratch}"


class StagedFiles(msgspec.Struct, frozen=True):
    """Files that a plan wants in a folder of the run. `scratch` is the name of its scratch folder."""

    scratch: str
    folder: Path
    files: dict[str, bytes]
    is_outside: bool = False
    """`folder` is not in the scratch folder, which then records it."""


class Scratch:
    """The private files of one run or process. Nothing is made before it is needed.

    `write` a file or take the `folder`; `close` removes it all and never raises. A plan that has named files in it
    gives its `name`.
    """

    def __init__(self, places: Places, name: str | None = None) -> None:
        self._places = places
        self._name = name
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
            self._folder, self._lock = _make(private_dir(self._places.runs), self._name)
            _living.add(self)
        return self._folder

    def write(self, name: str, data: bytes | str) -> Path:
        """Write a file, 0600, that was not there before; raises OSError where it cannot be."""
        file = self.folder / name
        _write_new(file, data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        return file

    def stage(self, staged: StagedFiles) -> None:
        """Make the folder of these files, 0700, and write them, 0600; raises OSError."""
        if staged.is_outside:
            self.make_elsewhere(staged.folder)
        else:
            _ = self.folder  # made now: `staged.folder` is in it
            staged.folder.mkdir(mode=0o700)
        for name, data in staged.files.items():
            _write_new(staged.folder / name, data)

    def make_elsewhere(self, folder: Path) -> None:
        """Make a folder of this run, 0700, outside the scratch folder, named by `name_elsewhere`."""
        with open(self.folder / _ELSEWHERE, "ab") as note:
            note.write(os.fsencode(folder) + b"\0")
        folder.mkdir(mode=0o700)

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


def _write_new(file: Path, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)


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


def _make(parent: Path, name: str | None) -> tuple[Path, FileLock]:
    """A new folder and its lock. If a sweep of another run came between the two steps, try again."""
    while True:
        folder = parent / (name or new_scratch_name())
        folder.mkdir(mode=0o700)
        lock = _take(folder)
        if lock is not None:
            return folder, lock
        if name is not None:
            _wait_until_gone(folder)


def _wait_until_gone(folder: Path) -> None:
    """Wait for the sweep that removes the folder; raises OSError if that takes too long."""
    give_up = time.monotonic() + _SWEEP_TIMEOUT
    while folder.exists():
        if time.monotonic() > give_up:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        time.sleep(0.001)


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
