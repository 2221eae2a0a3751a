"""Accept connections: no more than this process has room for, and running out of descriptors ends nothing.

Imported late, by the gateway's thread, as `connection` is.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import anyio

from geminids.at_fork import close_in_child
from geminids.errors import GeminidsError
from geminids.gateway.forward.connection import Line

__all__ = ["accept", "most_connections"]

# How long we wait for a descriptor to become free.
_NO_ROOM = 0.1
# How long no connection can be accepted before we give up: the clients wait in the backlog, and their runs would hang.
_PATIENCE = 10.0
_CHECK_SECONDS = 1.0
_WHERE_NOBODY_SAYS = 16384


async def accept(
    listener: socket.socket,
    serve: Callable[[Line], Awaitable[None]],
    failed: Callable[[str], None],
) -> None:
    """Serve each connection; those over the limit wait in the backlog. Raises if the listener is closed under us, or
    if no descriptor becomes free for a connection that waits."""
    loop = asyncio.get_running_loop()
    room = anyio.Semaphore(most_connections())
    port = listener.getsockname()[1]

    async def served(sock: socket.socket) -> None:
        try:
            # Without it the first chunk waits 40 ms, until the client has acknowledged the head.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, line = await loop.connect_accepted_socket(Line, close_in_child(sock))
            # `write` waits until the system has everything, so that a reset loses nothing that was written before it.
            # Not for TLS to the API: there a limit of 0 pauses a buffer that is empty (asyncio.sslproto).
            line.transport.set_write_buffer_limits(0)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            failed(f"a connection could not be accepted: {error}")
        else:
            await serve(line)
        finally:
            room.release()

    async def check(scope: anyio.CancelScope) -> None:
        # No event reports that a listener was closed: its clients would be refused, and their runs hang in retries.
        while _is_listening(listener, port):
            await anyio.sleep(_CHECK_SECONDS)
        scope.cancel()

    problem = "other code in this process has closed its listening socket"
    failing_since: float | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check, tasks.cancel_scope)
        while True:
            await room.acquire()
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                # A tool that opens hundreds of connections must not end the runs of others.
                room.release()
                failed(f"a connection could not be accepted: {error}")
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _PATIENCE and _is_listening(listener, port):
                    problem = f"it could accept no connection for {_PATIENCE:.0f} seconds: {error.strerror}"
                    tasks.cancel_scope.cancel()
                await anyio.sleep(_NO_ROOM)
            else:
                failing_since = None
                tasks.start_soon(served, sock)
    raise GeminidsError(problem)


def _is_listening(listener: socket.socket, port: int) -> bool:
    try:
        return bool(listener.getsockname()[1] == port)
    except (OSError, TypeError, IndexError):  # closed, or its descriptor is now something else
        return False


def most_connections() -> int:
    """Half of the descriptors that this process may have: the other half is for its runs and the way to the API."""
    try:
        import resource
    except ImportError:  # none on Windows
        return _WHERE_NOBODY_SAYS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WHERE_NOBODY_SAYS if soft == resource.RLIM_INFINITY else max(soft // 2, 16)
