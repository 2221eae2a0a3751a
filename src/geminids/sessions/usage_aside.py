"""A part of the session files, read by a fork of this process while it reads the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

__all__ = ["aside"]

_T = TypeVar("_T")


def aside(work: Callable[[], _T], kind: type[_T]) -> Callable[[], _T]:
    """Begin some work in a fork of this process, and return what waits for its result.

    Where there is no fork, where it has threads, or where it fails, the work is done when it is asked for.
    """
    if sys.platform == "win32" or _has_threads():
        return work
    # Nothing that was printed shall be printed twice.
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return work
    if child == 0:
        _serve(work, writing)
    os.close(writing)

    def result() -> _T:
        with open(reading, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)
        return msgspec.msgpack.decode(data, type=kind) if status == 0 else work()

    return result


def _has_threads() -> bool:
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


def _serve(work: Callable[[], object], writing: int) -> None:
    """Never returns: what the fork has inherited is none of its business."""
    code = 1
    try:
        with open(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(work()))
        code = 0
    finally:
        os._exit(code)
