"""Forks of the host: close the gateway's sockets in the child, and do not fork while a thread of ours imports.

The child has no thread that serves the sockets, but its copies would keep the port open, and hide from a client that
its connection was closed or reset.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

__all__ = ["close_in_child", "importing"]

_sockets: WeakSet[socket.socket] = WeakSet()
_imports = threading.RLock()


def close_in_child(sock: socket.socket) -> socket.socket:
    """Mark a socket of the gateway: every child that is forked from now on closes its copy."""
    _sockets.add(sock)
    return sock


def _close_copies() -> None:
    # Not through asyncio's transports: the parent's epoll instance is shared, and they would unregister the sockets.
    for sock in list(_sockets):
        sock.close()
    _sockets.clear()


@contextmanager
def importing() -> Iterator[None]:
    """Let a fork of this process wait until the imports in this block are done; for imports in our own threads.

    A child that is forked in the middle of an import gets a copy of the module's lock, but not the thread that would
    release it: when the child imports the same module, it waits for ever (importlib, `_ModuleLock`).
    """
    with _imports:
        yield


def _before_fork() -> None:
    _imports.acquire()


def _after_fork_in_parent() -> None:
    _imports.release()


def _after_fork_in_child() -> None:
    global _imports
    _imports = threading.RLock()
    _close_copies()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
