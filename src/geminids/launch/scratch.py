"""The scratch folder of a run: a folder for the run's private temporary files.

The folder is removed when the run ends.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import time
from pathlib import Path

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir

__all__ = ["Scratch", "StagedFiles", "name_elsewhere", "new_scratch_name", "sweep"]

_PREFIX = "run-"
# Our process holds a lock on this file until the process ends. `sweep` checks the lock, not a pid,
# because another process could reuse the pid.
_LOCK = "lock"
# A file that lists the run's folders outside the scratch folder. Each path ends with a NUL. A path
# is written before its folder is created.
_ELSEWHERE = "elsewhere"
_SWEEP_TIMEOUT = 5.0


def new_scratch_name() -> str:
    """Return a new name for a scratch folder, the private temporary folder of a run.

    The folder is not created.
    """
    return f"{_PREFIX}{os.urandom(8).hex()}"


def name_elsewhere(scratch: str, *, hidden: bool = True) -> str:
    """Return a name for a folder that a run creates outside its scratch folder.

    `scratch` is the name of the scratch folder. A `hidden` name starts with a dot.
    """
    return f"{'.' if hidden else ''}geminids-{scratch}"


class StagedFiles(msgspec.Struct, frozen=True):
    """Files that a run needs, and the `folder` to write them to.

    `scratch` is the name of the run's scratch folder. `files` maps file names to contents.
    """

    scratch: str
    folder: Path
    files: dict[str, bytes]
    is_outside: bool = False
    """Whether `folder` is outside the scratch folder."""


class Scratch:
    """The private temporary folder (scratch folder) of a run or process.

    The folder is created when it is first used. `close` removes the folder and all its files.

    `name` is the name of the folder; None means a random name. Pass `name` if a plan already
    contains paths in the folder.
    """

    def __init__(self, places: Places, name: str | None = None) -> None:
        self._places = places
        self._name = name
        self._folder: Path | None = None
        self._lock: FileLock | None = None

    @property
    def made(self) -> bool:
        """Whether the scratch folder exists and belongs to this process."""
        # After a fork, the folder and the lock belong to the parent process.
        return self._lock is not None and self._lock.is_held

    @property
    def folder(self) -> Path:
        """The path of the scratch folder. The folder is created (mode 0700) if it does not exist.

        Raises `OSError` if the folder cannot be created.
        """
        if self._folder is None or not self.made:
            self._folder, self._lock = _make(private_dir(self._places.runs), self._name)
            _open.add(self)
        return self._folder

    def write(self, name: str, data: bytes | str) -> Path:
        """Create a file (mode 0600) in the scratch folder and return the file's path.

        Raises `OSError` if the file exists already or cannot be written.
        """
        file = self.folder / name
        _write_new(file, data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        return file

    def stage(self, staged: StagedFiles) -> None:
        """Create `staged.folder` (mode 0700) and write the files of `staged` to it (mode 0600).

        Raises `OSError` if the folder exists already, or if a file cannot be written.
        """
        if staged.is_outside:
            self.make_elsewhere(staged.folder)
        else:
            _ = self.folder  # creates the parent of `staged.folder`
            staged.folder.mkdir(mode=0o700)
        for name, data in staged.files.items():
            _write_new(staged.folder / name, data)

    def make_elsewhere(self, folder: Path) -> None:
        """Create `folder` (mode 0700), which is outside the scratch folder.

        `close` removes `folder` too. The name of `folder` must come from `name_elsewhere`. Raises
        `OSError` if `folder` exists already or cannot be created.
        """
        with open(self.folder / _ELSEWHERE, "ab") as note:
            note.write(os.fsencode(folder) + b"\0")
        folder.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove the scratch folder, and the folders that the run created outside it.

        If a file cannot be removed now, a later run tries again (see `sweep`).
        """
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
    """Remove the scratch folders of processes that have ended, and return how many were removed.

    In the example, the folder that contains all scratch folders does not exist.

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
    """Create a scratch folder in `parent`, take its lock, and return both.

    The `sweep` of another run can take the lock first and remove the folder. In that case, this
    function creates the folder again.
    """
    while True:
        folder = parent / (name or new_scratch_name())
        folder.mkdir(mode=0o700)
        lock = _take(folder)
        if lock is not None:
            return folder, lock
        if name is not None:
            _wait_until_gone(folder)


def _wait_until_gone(folder: Path) -> None:
    """Wait until another process's `sweep` has removed the scratch folder `folder`.

    Raises `FileExistsError` if the folder still exists after 5 seconds.
    """
    deadline = time.monotonic() + _SWEEP_TIMEOUT
    while folder.exists():
        if time.monotonic() > deadline:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        time.sleep(0.001)


def _take(folder: Path) -> FileLock | None:
    """Take the lock of the scratch folder `folder`, and return the lock.

    Return None if another process holds the lock, or if the folder does not exist any more.
    """
    try:
        return FileLock.take(folder / _LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove(folder: Path) -> None:
    for other in _folders_elsewhere(folder):
        _remove_tree(other)
    _remove_tree(folder)


def _folders_elsewhere(folder: Path) -> list[Path]:
    """Return the folders that a run has created outside its scratch folder `folder`.

    A file in the scratch folder lists them. Paths whose names do not belong to this run are
    ignored.
    """
    try:
        record = (folder / _ELSEWHERE).read_bytes()
    except OSError:
        return []
    # If the last entry has no NUL, the process died while it wrote the entry, and before it created
    # the folder.
    paths = [Path(os.fsdecode(name)) for name in record.split(b"\0")[:-1]]
    return [path for path in paths if path.name.lstrip(".") == f"geminids-{folder.name}"]


def _remove_tree(folder: Path) -> None:
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
    """When Python exits, close the scratch folders that are still open.

    They belong to runs that were created but never used with `async with`.
    """
    for scratch in list(_open):
        scratch.close()
