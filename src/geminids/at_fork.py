"""Clean up in the child processes that the host program forks. The host program is the program
that uses geminids. This is the only module of geminids that calls `os.register_at_fork`.

A forked child has only the thread that called `fork`. It has copies of all open files and sockets
of its parent. A lock that another thread of the parent held stays locked in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from geminids.log import get_logger

if TYPE_CHECKING:
    import socket

__all__ = ["close_in_child", "importing", "run_in_child"]

_log = get_logger("process")

_functions: list[Callable[[], None]] = []
_sockets: WeakSet[socket.socket] = WeakSet()
_imports = threading.RLock()


def run_in_child(function: Callable[[], None]) -> None:
    """Register a function. Every child process that this process forks from now on calls it.

    Registered functions are called in the order in which they were registered.
    """
    _functions.append(function)


def close_in_child(sock: socket.socket) -> socket.socket:
    """Register a socket, and return it. Every child process that this process forks from now on
    closes its copy of the socket.

    The child does not need the copy. An open copy would keep the port in use. The other side of the
    connection would also not notice when the parent closes the socket.
    """
    _sockets.add(sock)
    return sock


@contextmanager
def importing() -> Iterator[None]:
    """Delay forks of this process until the `with` block ends. The block must contain the imports
    of a thread that geminids has started.

    Without this, another thread could fork during an import. The child would then have a locked
    copy of the module's import lock (importlib, `_ModuleLock`), but not the thread that releases
    the lock. If the child imported the same module, the import would never end.
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
    # Do not close asyncio's transports: they would unregister the sockets from the epoll instance,
    # which the child shares with its parent.
    for sock in list(_sockets):
        sock.close()
    _sockets.clear()
    for function in _functions:
        try:
            function()
        except Exception as error:
            _log.error("a function that runs in forked children failed", error=error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
