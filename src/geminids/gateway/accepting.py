"""Taking connections: never more than this process can have, and a full table of descriptors ends nothing.

Imported late, by the gateway's thread, as `connection` is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

__all__ = ["accept", "most_connections"]

# How long we wait for somebody to give a descriptor back.
_NO_ROOM = 0.1
_WHERE_NOBODY_SAYS = 16384


async def accept(
    listener: anyio.abc.SocketListener,
    serve: Callable[[anyio.abc.SocketStream], Awaitable[None]],
    failed: Callable[[str], None],
) -> None:
    """Serve each connection; those beyond what we can have at once wait in the backlog."""
    room = anyio.Semaphore(most_connections())

    async def served(stream: anyio.abc.SocketStream) -> None:
        try:
            await serve(stream)
        finally:
            room.release()

    async with anyio.create_task_group() as tasks:
        while True:
            await room.acquire()
            try:
                tasks.start_soon(served, await listener.accept())
            except OSError as error:
                # A tool that opens hundreds of them must not end the runs of others.
                room.release()
                failed(f"a connection could not be taken: {error}")
                await anyio.sleep(_NO_ROOM)


def most_connections() -> int:
    """Half of the descriptors that this process may have: the other half is for its runs and the way to the API."""
    try:
        import resource
    except ImportError:  # none on Windows
        return _WHERE_NOBODY_SAYS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WHERE_NOBODY_SAYS if soft == resource.RLIM_INFINITY else max(soft // 2, 16)
