"""Session locks: only one run can use a session at a time, across tasks, threads and processes.

A lock is a file below `Places.locks` (`config/flock`). The kernel frees it when its process ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir
from geminids.errors import SessionBusy, SessionError
from geminids.ids import is_session_id

__all__ = ["Holder", "Lock", "hold", "still_writing", "try_hold"]

# The record of the holder is written some microseconds after the lock is taken, and a sweep holds a
# lock for as long: look again before reporting an unknown holder.
_TRIES = 100
_PAUSE = 0.001
# Interval of a waiter's tries, each of which takes two system calls.
_POLL = 0.02


class Holder(msgspec.Struct, frozen=True):
    """Who holds a session: the host process, its run, and since when (Unix seconds)."""

    pid: int | None = None
    run_id: str | None = None
    since: float | None = None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        when = "" if self.since is None else time.strftime(" since %H:%M:%S", time.localtime(self.since))
        return f"run {self.run_id} of process {self.pid}{when}"


class Lock:
    """A held session. `release` it, or use `with`. The end of the process releases it too.

    `left_by` is the previous holder, if it died without releasing: its CLI may still run for a short
    time (`still_writing`).
    """

    def __init__(self, session_id: str, lock: FileLock, file: Path, left_by: Holder | None) -> None:
        self.session_id = session_id
        self.left_by = left_by
        self._lock = lock
        self._file = file

    @property
    def held(self) -> bool:
        return self._lock.is_held

    def release(self) -> None:
        """Release the lock and remove its file. A second call has no effect."""
        if self._lock.is_held:
            _remove(self._lock, self._file)
            _sweep(self._file.parent)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def try_hold(session_id: str, run_id: str, *, places: Places | None = None) -> Lock | Holder:
    """Take the lock of a session without waiting, or return its holder.

    Raises SessionError if the lock file cannot be written.
    """
    return _try(session_id, run_id, places or Places.of(), _TRIES)


def _try(session_id: str, run_id: str, places: Places, tries: int) -> Lock | Holder:
    file = _file_of(session_id, places)
    while True:
        try:
            lock = _take(file)
        except OSError as error:
            raise SessionError(
                f"cannot lock session {session_id}: {error}",
                hint=f"Make {file.parent} writable, or set GEMINIDS_HOME to a writable folder.",
            ) from None
        if lock is not None:
            return _with_record(session_id, run_id, lock, file)
        holder = _read(file)
        if tries <= 0 or (holder is not None and _is_alive(holder)):
            return holder or Holder()
        tries -= 1
        time.sleep(_PAUSE)


@asynccontextmanager
async def hold(
    session_id: str,
    run_id: str,
    *,
    wait: bool = True,
    on_wait: Callable[[Holder], None] | None = None,
    places: Places | None = None,
) -> AsyncIterator[Lock]:
    """Hold a session for the block. Wait until it is free, and call `on_wait` for each new holder.

    Without `wait`, raises SessionBusy if another run holds it.
    """
    import anyio  # imported late: it must not delay the start of the CLI

    reported: Holder | None = None
    places = places or Places.of()
    # Only the first call may sleep: later ones must not block the event loop, and the next is soon.
    while not isinstance(taken := _try(session_id, run_id, places, 0 if reported else _TRIES), Lock):
        if not wait:
            raise SessionBusy(session_id, holder=taken)
        if taken != reported:
            reported = taken
            if on_wait is not None:
                on_wait(taken)
        await anyio.sleep(_POLL)
    with taken:
        yield taken


def still_writing(holder: Holder) -> bool:
    """Whether a process of the holder's run is alive. The guard ends them shortly after a host dies."""
    from geminids.process.tree import all_marked  # imported late: psutil

    suffix = f":{holder.run_id}"
    return any(mark.endswith(suffix) for _, value in all_marked() for mark in value.split())


def _sweep(folder: Path) -> None:
    """Remove the lock files of holders that died."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            lock = FileLock.take(folder / name, make=False)
        except OSError:
            continue
        if lock is not None:
            _remove(lock, folder / name)


def _file_of(session_id: str, places: Places) -> Path:
    if not is_session_id(session_id):
        raise SessionError("a session id consists of at most 128 letters, digits, - and _")
    return places.locks / f"gemini-{session_id}"


def _take(file: Path) -> FileLock | None:
    """Lock this file; create its folder if needed."""
    try:
        return FileLock.take(file)
    except FileNotFoundError:
        private_dir(file.parent)
        return FileLock.take(file)


def _with_record(session_id: str, run_id: str, lock: FileLock, file: Path) -> Lock:
    """Write the holder into the lock file. On a full disk only this record is missing."""
    left_by = _decoded(os.pread(lock.fd, 4096, 0))
    holder = Holder(os.getpid(), run_id, time.time())
    try:
        # Write one line, then truncate: a reader sees the old or the new record, never a mix.
        line = msgspec.json.encode(holder) + b"\n"
        os.pwrite(lock.fd, line, 0)
        os.ftruncate(lock.fd, len(line))
    except OSError:
        pass
    return Lock(session_id, lock, file, left_by)


def _remove(lock: FileLock, file: Path) -> None:
    try:
        file.unlink()
    except OSError:
        pass  # a later sweep removes the file, or a later run locks it again
    finally:
        lock.close()


def _read(file: Path) -> Holder | None:
    try:
        with open(file, "rb") as record:
            return _decoded(record.read(4096))
    except OSError:
        return None


def _decoded(record: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(record.partition(b"\n")[0], type=Holder)
    except msgspec.DecodeError:
        return None


def _is_alive(holder: Holder) -> bool:
    from geminids.process.marker import Mark

    if holder.pid is None or holder.since is None:
        return False
    return Mark(holder.pid, int(holder.since * 1000), "", "").host_is_alive()
