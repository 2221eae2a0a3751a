"""Lock a session, so that only one run can use it at a time. The lock works across threads and
processes.

A lock is a locked file in the folder `Places.locks` (see `config/flock`). When the process that has
locked the file ends, the kernel unlocks the file.
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
from geminids.process.marker import Mark

__all__ = ["Holder", "Lock", "hold", "still_writing", "try_hold"]

# How often to try again if the holder of a lock is unknown, and the seconds between two tries. The
# holder is unknown only for some microseconds: a process writes its name into the lock file after
# it has locked the file, and `_sweep` locks files for a moment.
_TRIES = 100
_PAUSE = 0.001
# The number of seconds between two tries of a waiting run. A try takes two system calls.
_POLL = 0.02


class Holder(msgspec.Struct, frozen=True):
    """The run that has locked a session. `pid` is the id of the Python process of this run. `since`
    is the time at which the run locked the session, in Unix seconds.

    A field is None if it is unknown.
    """

    pid: int | None = None
    run_id: str | None = None
    since: float | None = None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        when = "" if self.since is None else time.strftime(" since %H:%M:%S", time.localtime(self.since))
        return f"{self.run_id or 'a run'} of process {self.pid}{when}"


class Lock:
    """A lock on a session. This process holds the lock. Call `release` to unlock the session, or
    use the lock in a `with` statement.

    The session is also unlocked when the process ends. If the process of an earlier run died
    without releasing its lock, `left_by` describes that run; otherwise `left_by` is None. The CLI
    of that run may still run for a short time: see `still_writing`.
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
        """Release the lock and remove the lock file. A second call has no effect."""
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
    """Lock a session for the run `run_id` without waiting, and return the lock. If another run has
    locked the session, return the holder, which describes that run.

    Raises `SessionError` if `session_id` is not a valid id, or if the lock file cannot be created.
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
    """Lock a session for the run `run_id` during the `async with` block. Wait until no other run
    uses the session.

    During the wait, `on_wait` is called once for each run that has the lock. With `wait=False`,
    raise `SessionBusy` if another run has locked the session.
    """
    import anyio  # imported late: it must not delay the start of the CLI

    reported: Holder | None = None
    places = places or Places.of()
    # Only the first call may sleep inside `_try`: the other calls must not block the event loop.
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
    """Return whether the run `holder` can still write to the session, because one of its processes
    is still running.

    If the Python process of a run dies, the CLI continues for a short time. Then the guard, a small
    process that watches the run, ends all processes of the run.
    """
    from geminids.process.tree import all_marked  # imported late: it loads psutil

    suffix = f":{holder.run_id}"
    return any(mark.endswith(suffix) for _, value in all_marked() for mark in value.split())


def _sweep(folder: Path) -> None:
    """Remove the lock files in `folder` that are no longer locked, because the processes that
    locked them have died.
    """
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
        raise SessionError(
            f"{session_id[:200]!r} is not a session id, which has at most 128 letters, digits, - and _",
            hint="List the ids: geminids sessions list",
        )
    return places.locks / f"gemini-{session_id}"


def _take(file: Path) -> FileLock | None:
    """Lock this file, and create the file and its folder if needed. Return the lock; None if the
    file is already locked.
    """
    try:
        return FileLock.take(file)
    except FileNotFoundError:
        private_dir(file.parent)
        return FileLock.take(file)


def _with_record(session_id: str, run_id: str, lock: FileLock, file: Path) -> Lock:
    """Write into the lock file which run has the lock, and return the lock.

    If writing fails, for example because the disk is full, the lock still works.
    """
    left_by = _decoded(os.pread(lock.fd, 4096, 0))
    holder = Holder(os.getpid(), run_id, time.time())
    try:
        # Write the line before truncating the file. A reader reads only the first line, so it gets
        # the old or the new holder, never a mix.
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
        pass  # a later `_sweep` removes the file, or a later run locks it again
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
    if holder.pid is None or holder.since is None:
        return False
    return Mark(holder.pid, int(holder.since * 1000), "", "").host_is_alive()
