"""One run at a time in a session: a lock across tasks, threads and processes, which the kernel frees.

A lock is a file below `Places.locks` (`config/flock`).
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

# Between the lock and the record of its holder lie some microseconds, and a sweep holds a lock as briefly.
_LOOKS = 100
_PAUSE = 0.001
# How often a waiter tries: two system calls each time.
_POLL = 0.02


class Holder(msgspec.Struct, frozen=True):
    """Who holds a session: the host process, its run, and since when (seconds of the epoch)."""

    pid: int | None = None
    run_id: str | None = None
    since: float | None = None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        when = "" if self.since is None else time.strftime(" since %H:%M:%S", time.localtime(self.since))
        return f"run {self.run_id} of process {self.pid}{when}"


class Lock:
    """A session that is held. `release` it, or use it in a `with`; the end of the process does it too.

    `left_by` is the holder before, if it died holding: its CLI may live for a moment yet (`still_writing`).
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
        """Let go, and leave no file. Once is enough; twice does no harm."""
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
    """Take the session's lock now, or say who has it. Raises SessionError where nothing can be locked."""
    return _try(session_id, run_id, places or Places.of(), _LOOKS)


def _try(session_id: str, run_id: str, places: Places, looks: int) -> Lock | Holder:
    file = _file_of(session_id, places)
    while True:
        try:
            lock = _take(file)
        except OSError as error:
            raise SessionError(
                f"the session {session_id} cannot be locked: {error}",
                hint=f"Make {file.parent} writable, or set GEMINIDS_HOME to a folder that is.",
            ) from None
        if lock is not None:
            return _with_record(session_id, run_id, lock, file)
        holder = _read(file)
        if looks <= 0 or (holder is not None and _is_alive(holder)):
            return holder or Holder()
        looks -= 1
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
    """Hold a session for a block; wait for it, and say for whom each time that changes.

    Without `wait`, SessionBusy is raised where another has it.
    """
    import anyio  # imported late: the CLI must be spawned before it

    told: Holder | None = None
    places = places or Places.of()
    # A waiter's next try comes soon anyway: it must not hold up the event loop.
    while not isinstance(got := _try(session_id, run_id, places, 0 if told else _LOOKS), Lock):
        if not wait:
            raise SessionBusy(session_id, holder=got)
        if got != told:
            told = got
            if on_wait is not None:
                on_wait(got)
        await anyio.sleep(_POLL)
    with got:
        yield got


def still_writing(holder: Holder) -> bool:
    """Whether a process of this holder's run lives. The guard ends them when a host dies, some moments later."""
    from geminids.process.tree import all_marked  # imported late: psutil

    ending = f":{holder.run_id}"
    return any(mark.endswith(ending) for _, value in all_marked() for mark in value.split())


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
        raise SessionError("a session id has letters, digits, - and _ only, at most 128 of them")
    return places.locks / f"gemini-{session_id}"


def _take(file: Path) -> FileLock | None:
    """Lock the file that has this name, in a folder that is made where there is none."""
    try:
        return FileLock.take(file)
    except FileNotFoundError:
        private_dir(file.parent)
        return FileLock.take(file)


def _with_record(session_id: str, run_id: str, lock: FileLock, file: Path) -> Lock:
    """Write down who holds it. The lock is what counts: a disk that is full costs the record alone."""
    left_by = _decoded(os.pread(lock.fd, 4096, 0))
    holder = Holder(os.getpid(), run_id, time.time())
    try:
        # The record is one line, written before the rest is cut off: a reader finds the old or the new one.
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
        pass  # a stale file is swept later, or taken again
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
