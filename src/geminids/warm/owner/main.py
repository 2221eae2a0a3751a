"""The owner daemon: it has one pool of warm processes and serves runs over a socket.

It ends when it has had no run for a certain time.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import anyio
from anyio.abc import TaskGroup

from geminids.config.flock import FileLock
from geminids.config.paths import Places
from geminids.process.hardening import protect_command
from geminids.version import __version__
from geminids.warm.owner.place import OwnerPlace, peer_of
from geminids.warm.owner.protocol import OwnerStatus, Process
from geminids.warm.owner.serve import Visit
from geminids.warm.pool import Pool

__all__ = ["Owner", "main"]

_KEEP = 300.0
_LOOK = 0.2
# When the owner daemon ends, clients have this many seconds to read their results. A client that
# does not read must not keep the daemon alive.
_PATIENCE = 15.0
_SHORTEST = 0.1
_LOG_LIMIT = 64 * 1024


class Owner:
    """The daemon that serves runs of other processes, with a pool of warm processes.

    `leave` ends the daemon after its last run. `end` ends it at once.
    """

    def __init__(self, place: OwnerPlace, listener: socket.socket, lock: FileLock) -> None:
        self._place = place
        self._listener: socket.socket | None = listener
        self._lock = lock
        self._own = os.stat(place.socket).st_ino
        self._since = time.time()
        self._last = time.monotonic()
        self._keep = _KEEP
        self._visits: set[Visit] = set()
        self._tasks: TaskGroup | None = None
        self._over = anyio.Event()
        self.umask = _umask()
        self.runs = 0
        self.served = 0
        self.pool = Pool(idle=_KEEP)

    async def serve(self) -> None:
        """Serve runs until `end` is called. Then end all warm processes."""
        async with self.pool, anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._accept)
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_idle)
            await self._over.wait()
            self.leave()
            for visit in list(self._visits):
                visit.owner_ends()
            with anyio.move_on_after(_PATIENCE):
                while self._visits:
                    await anyio.sleep(_LOOK / 10)
            tasks.cancel_scope.cancel()

    def leave(self) -> None:
        """Release the socket, so that another owner daemon can start.

        Current runs continue to their end. Then this daemon ends.
        """
        listener, self._listener = self._listener, None
        if listener is None:
            return
        anyio.notify_closing(listener)
        if self._is_in_place():
            self._place.socket.unlink(missing_ok=True)
        listener.close()
        self._lock.close()

    def end(self) -> None:
        """End the owner daemon now, with all its runs."""
        self._over.set()

    def began(self, keep: float) -> None:
        """Record that a run begins.

        `keep` is a number of seconds. If no other run begins within this time after the run's end,
        the owner daemon ends.
        """
        self.runs += 1
        self._keep = self.pool.idle = max(keep, _SHORTEST)

    def ended(self) -> None:
        self.runs -= 1
        self.served += 1
        self._last = time.monotonic()

    def status(self) -> OwnerStatus:
        left = None if self.runs else max(0.0, self._keep - (time.monotonic() - self._last))
        return OwnerStatus(
            pid=os.getpid(),
            version=__version__,
            since=self._since,
            runs=self.runs,
            served=self.served,
            ends_in=left,
            processes=tuple(
                Process(
                    pid=process.pid,
                    version=process.version,
                    chats=process.chats,
                    turns=process.turns,
                    memory=process.memory,
                    age=process.age,
                    idle=process.idle,
                )
                for process in self.pool.status()
            ),
        )

    async def _accept(self) -> None:
        while self._listener is not None:
            try:
                await anyio.wait_readable(self._listener)
                sock, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except anyio.ClosedResourceError:
                return
            except OSError:
                await anyio.sleep(_LOOK)  # for example too many open files: try again
                continue
            if peer_of(sock).uid not in (os.getuid(), None):
                sock.close()
                continue
            sock.setblocking(False)
            assert self._tasks is not None
            self._tasks.start_soon(self._attend, sock)

    async def _attend(self, sock: socket.socket) -> None:
        visit = Visit(self, sock)
        self._visits.add(visit)
        try:
            await visit.attend()
        except Exception as error:
            _log(f"a connection failed: {_where(error)}")
        finally:
            self._visits.discard(visit)
            sock.close()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                _log(f"ended by {signal.Signals(number).name}")
                self.end()

    async def _watch_idle(self) -> None:
        """End the owner daemon when it has had no run for a certain time.

        If the daemon's socket was removed, no client can connect any more. The daemon then ends
        after its last run.
        """
        while True:
            await anyio.sleep(min(_LOOK, self._keep / 4))
            if self._listener is not None and not self._is_in_place():
                self.leave()
            gone = self._listener is None
            if not self.runs and (gone or time.monotonic() - self._last >= self._keep):
                self.end()

    def _is_in_place(self) -> bool:
        try:
            return os.stat(self._place.socket).st_ino == self._own
        except OSError:
            return False


def main() -> None:
    """Become the owner daemon, which serves runs of other processes.

    If an owner daemon already exists, return at once.
    """
    place = OwnerPlace(Places.of())
    place.check()
    lock = FileLock.take(place.lock)
    if lock is None:
        return
    if place.log.exists() and place.log.stat().st_size > _LOG_LIMIT:
        os.truncate(place.log, 0)
    # Clients send their environment, which contains keys. The environment stays in memory until
    # their runs end, so no other process may read the memory.
    protect_command()
    listener = place.listen()
    owner = Owner(place, listener, lock)
    _log("ready")
    try:
        anyio.run(owner.serve)
    except BaseException as error:
        _log(f"failed: {_where(error)}")
        sys.exit(1)
    _log(f"ended after {owner.served} runs")


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _log(event: str) -> None:
    """Write one line to stderr, which is the owner's log: time, process id and event.

    The log never contains the content of a run.
    """
    print(time.strftime("%Y-%m-%d %H:%M:%S"), f"owner {os.getpid()}", event, file=sys.stderr, flush=True)


def _where(error: BaseException) -> str:
    """Return the type of an error, and the file and line that raised it.

    The message of the error is not included, because it could contain secrets.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{at}"


if __name__ == "__main__":
    main()
