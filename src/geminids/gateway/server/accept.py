"""Accept the connections of clients to the gateway, up to a limit. If the process temporarily has
no free file descriptors, try again later.

The gateway imports this module only when it begins to answer, because importing anyio is slow.
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

# Seconds until the next attempt after a connection could not be accepted.
_RETRY_SECONDS = 0.1
# Give up if no connection could be accepted for this many seconds. Otherwise the clients would wait
# for ever in the queue of the listening socket, and their runs would hang.
_GIVE_UP_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_DEFAULT_CONNECTIONS = 16384


async def accept(
    listener: socket.socket,
    serve: Callable[[TcpConnection], Awaitable[None]],
    on_error: Callable[[str], None],
) -> None:
    """Accept connections, and call `serve` for each of them. If the maximum number of connections
    is open, further ones wait in the queue of the listening socket. `on_error` is called with a
    message for each connection that cannot be accepted.

    Raises `GeminidsError` if other code closes `listener`, or if no connection could be accepted
    for ten seconds.
    """
    loop = asyncio.get_running_loop()
    slots = anyio.Semaphore(max_connections())
    port = listener.getsockname()[1]

    async def served(sock: socket.socket) -> None:
        try:
            # Without TCP_NODELAY, the first piece of an answer waits 40 ms, until the client has
            # acknowledged the headers.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, tcp = await loop.connect_accepted_socket(TcpConnection, close_in_child(sock))
            # With a limit of 0, `write` waits until the system has accepted all data, so that a
            # later reset does not lose it. TLS connections to the API do not use this limit: it
            # would pause them even with an empty buffer (asyncio.sslproto).
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
        # Check again and again, because no event reports a closed listener. Without this check,
        # clients would get no connection, and their runs would retry for ever.
        while _is_listening(listener, port):
            await anyio.sleep(_CHECK_SECONDS)
        scope.cancel()

    problem = "other code in this process closed the gateway's listening socket"
    failing_since: float | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check, tasks.cancel_scope)
        while True:
            await slots.acquire()
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Continue: if a tool opens hundreds of connections, the other runs must not end.
                slots.release()
                on_error(f"a connection could not be accepted: {error}")
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > _GIVE_UP_SECONDS and _is_listening(listener, port):
                    seconds = f"{_GIVE_UP_SECONDS:.0f} seconds"
                    problem = f"the gateway could not accept a connection for {seconds}: {error.strerror}"
                    tasks.cancel_scope.cancel()
                await anyio.sleep(_RETRY_SECONDS)
            else:
                failing_since = None
                tasks.start_soon(served, sock)
    raise GeminidsError(problem, hint=None)  # the handler adds the hint


def _is_listening(listener: socket.socket, port: int) -> bool:
    try:
        return bool(listener.getsockname()[1] == port)
    except (OSError, TypeError, IndexError):  # closed, or another file reuses its descriptor
        return False


def max_connections() -> int:
    """Return the maximum number of connections from clients: half of the number of file descriptors
    that this process may open, but at least 16. The other half is for the runs of this process, and
    for connections to the API. If the number of file descriptors is unlimited or unknown, return a
    fixed default.
    """
    try:
        import resource  # not available on Windows
    except ImportError:
        return _DEFAULT_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _DEFAULT_CONNECTIONS if soft == resource.RLIM_INFINITY else max(soft // 2, 16)
