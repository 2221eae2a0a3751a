"""A run's private folder: created on first use, and always removed at the end of the run."""

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
# Locked while the host process lives. A sweep checks this lock and not a pid, which could be
# reused.
_LOCK = "lock"
# Lists folders outside the scratch folder, each ended by a NUL. An entry is written before its
# folder is created.
_ELSEWHERE = "elsewhere"
_SWEEP_TIMEOUT = 5.0


def new_scratch_name() -> str:
    """Return a name for a scratch folder that is created later."""
    return f"{_PREFIX}{os.urandom(8).hex()}"


def name_elsewhere(scratch: str, *, hidden: bool = True) -> str:
    """Return the name of a folder of this run outside the scratch folder."""
    return f"{'.' if hidden else ''}geminids-{scratch}"


class StagedFiles(msgspec.Struct, frozen=True):
    """Files to write to a `folder` of the run. `scratch` is the name of the scratch folder."""

    scratch: str
    folder: Path
    files: dict[str, bytes]
    is_outside: bool = False
    """`folder` is outside the scratch folder, which then records its path."""


class Scratch:
    """The private files of one run or process. The folder is created on first use.

    Call `write` or use `folder`; `close` removes everything and never raises. Pass `name` if a plan
    already refers to files in the folder.
    """

    def __init__(self, places: Places, name: str | None = None) -> None:
        self._places = places
        self._name = name
        self._folder: Path | None = None
        self._lock: FileLock | None = None

    @property
    def made(self) -> bool:
        """Whether the folder exists and belongs to this process."""
        # After a fork, folder and lock belong to the parent.
        return self._lock is not None and self._lock.is_held

    @property
    def folder(self) -> Path:
        """The folder (mode 0700), created if it does not exist; raises OSError."""
        if self._folder is None or not self.made:
            self._folder, self._lock = _make(private_dir(self._places.runs), self._name)
            _open.add(self)
        return self._folder

    def write(self, name: str, data: bytes | str) -> Path:
        """Create a file (mode 0600); raises OSError, also if it exists."""
        file = self.folder / name
        _write_new(file, data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        return file

    def stage(self, staged: StagedFiles) -> None:
        """Create the folder (mode 0700) and write the files (mode 0600); raises OSError."""
        if staged.is_outside:
            self.make_elsewhere(staged.folder)
        else:
            _ = self.folder  # creates the parent of `staged.folder`
            staged.folder.mkdir(mode=0o700)
        for name, data in staged.files.items():
            _write_new(staged.folder / name, data)

    def make_elsewhere(self, folder: Path) -> None:
        """Create a folder (mode 0700) outside the scratch folder. `name_elsewhere` gives its name."""
        with open(self.folder / _ELSEWHERE, "ab") as note:
            note.write(os.fsencode(folder) + b"\0")
        folder.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove everything. The sweep of the next run removes what cannot be removed now."""
        if self._folder is None or self._lock is None or not self.made:
            return
        folder, lock = self._folder, self._lock
        self._folder = self._lock = None
        _open.discard(self)
        try:
            _remove(folder)
        finally:
            lock.close()


def _write_new(file: Path, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)


def sweep(places: Places) -> int:
    """Remove the folders of dead processes and return their number.

    Costs one listing if there are none.

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
        return False  # another user's folder, or a file system without locks
    if lock is None:
        return False
    try:
        _remove(folder)
    finally:
        lock.close()
    return not folder.exists()


def _make(parent: Path, name: str | None) -> tuple[Path, FileLock]:
    """Create and lock a folder. Try again if another run's sweep locked it between the two steps."""
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
    deadline = time.monotonic() + _SWEEP_TIMEOUT
    while folder.exists():
        if time.monotonic() > deadline:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        time.sleep(0.001)


def _take(folder: Path) -> FileLock | None:
    """Take the folder's lock. Return None if another process has it or the folder is gone."""
    try:
        return FileLock.take(folder / _LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove(folder: Path) -> None:
    for other in _folders_elsewhere(folder):
        _remove_tree(other)
    _remove_tree(folder)


def _folders_elsewhere(folder: Path) -> list[Path]:
    """Return the recorded folders outside this one.

    Ignore paths whose name is not that of this run.
    """
    try:
        record = (folder / _ELSEWHERE).read_bytes()
    except OSError:
        return []
    # A last entry without NUL was cut off when the process died; its folder was not created yet.
    paths = [Path(os.fsdecode(name)) for name in record.split(b"\0")[:-1]]
    return [path for path in paths if path.name.lstrip(".") == f"geminids-{folder.name}"]


def _remove_tree(folder: Path) -> None:
    import shutil  # imported late: most runs do not need it

    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        # The agent may have removed the write permission of its folders.
        for path, _, _ in os.walk(folder):
            try:
                os.chmod(path, 0o700)
            except OSError:
                pass
        shutil.rmtree(folder, ignore_errors=True)


_open: set[Scratch] = set()


@atexit.register
def _close_all() -> None:
    """Close the scratch folders of runs that were launched but never entered."""
    for scratch in list(_open):
        scratch.close()
