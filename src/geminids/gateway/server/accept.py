"""Accept connections, up to a limit. Running out of file descriptors does not end the gateway.

The gateway's thread imports this module late, like `connection`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import anyio

from geminids.at_fork import close_in_child
from geminids.errors import GeminidsError
from geminids.gateway.forward.connection import TcpConnection

__all__ = ["accept", "max_connections"]

# Seconds until the next attempt after `accept` failed.
_RETRY_SECONDS = 0.1
# Give up if no connection could be accepted for this long: clients wait in the backlog, and their
# runs would hang.
_GIVE_UP_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_DEFAULT_CONNECTIONS = 16384


async def accept(
    listener: socket.socket,
    serve: Callable[[TcpConnection], Awaitable[None]],
    on_error: Callable[[str], None],
) -> None:
    """Serve each connection; those over the limit wait in the backlog. Raises if other code closes
    the listener, or if connections cannot be accepted for too long."""
    loop = asyncio.get_running_loop()
    slots = anyio.Semaphore(max_connections())
    port = listener.getsockname()[1]

    async def served(sock: socket.socket) -> None:
        try:
            # Without this, the first chunk waits 40 ms, until the client has acknowledged the head.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, tcp = await loop.connect_accepted_socket(TcpConnection, close_in_child(sock))
            # `write` waits until the system has taken everything, so that a reset loses nothing
            # written before it. Not for TLS to the API: there, a limit of 0 pauses an empty buffer
            # (asyncio.sslproto).
            tcp.transport.set_write_buffer_limits(0)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            on_error(f"a connection could not be accepted: {error}")
        else:
            await serve(tcp)
        finally:
            slots.release()

    async def check(scope: anyio.CancelScope) -> None:
        # No event reports a closed listener. Clients would be refused, and their runs would hang in
        # retries.
        while _is_listening(listener, port):
            await anyio.sleep(_CHECK_SECONDS)
        scope.cancel()

    problem = "other code in this process closed its listening socket"
    failing_since: float | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check, tasks.cancel_scope)
        while True:
            await slots.acquire()
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                # A tool that opens hundreds of connections must not end the runs of others.
                slots.release()
                on_error(f"a connection could not be accepted: {error}")
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _GIVE_UP_SECONDS and _is_listening(listener, port):
                    seconds = f"{_GIVE_UP_SECONDS:.0f} seconds"
                    problem = f"it could not accept a connection for {seconds}: {error.strerror}"
                    tasks.cancel_scope.cancel()
                await anyio.sleep(_RETRY_SECONDS)
            else:
                failing_since = None
                tasks.start_soon(served, sock)
    raise GeminidsError(problem)


def _is_listening(listener: socket.socket, port: int) -> bool:
    try:
        return bool(listener.getsockname()[1] == port)
    except (OSError, TypeError, IndexError):  # closed, or its descriptor is now something else
        return False


def max_connections() -> int:
    """Half of the file descriptors of this process: the other half is for its runs and its
    connections to the API."""
    try:
        import resource
    except ImportError:  # Windows
        return _DEFAULT_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _DEFAULT_CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft // 2, 16)
