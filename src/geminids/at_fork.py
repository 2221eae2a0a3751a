"""Clean up when the host program forks. Only this module calls `os.register_at_fork`.

A forked child has only the thread that called `fork`. Locks that other threads held stay locked in
the child, and it has copies of all open files and sockets.
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
    """Call `function` in every child forked from now on.

    Functions run in the order they were added.
    """
    _functions.append(function)


def close_in_child(sock: socket.socket) -> socket.socket:
    """Close the copy of this socket in every child forked from now on.

    No thread of the child serves the socket, but its copy would keep the port open, and a client
    would not notice that its connection was closed or reset.
    """
    _sockets.add(sock)
    return sock


@contextmanager
def importing() -> Iterator[None]:
    """Delay forks of this process until the imports in this block are done.

    Use it in our own threads.

    A child that is forked during an import gets a copy of the module's lock, but not the thread
    that would release it. If the child imports the same module, it waits forever (importlib,
    `_ModuleLock`).
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
