"""Work that a fork does."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from geminids.sessions.usage_aside import aside


def test_in_another_process() -> None:
    """The work is done by another process, and its result comes back whole, whatever its size."""
    result = aside(lambda: str(os.getpid()).encode() + b"x" * 1_000_000)()
    assert result.endswith(b"x" * 1_000_000)
    assert int(result.rstrip(b"x")) != os.getpid()


def test_fork_fails(tmp_path: Path) -> None:
    """Where the fork breaks, the work is done here: nothing is lost."""
    here = os.getpid()

    def work() -> bytes:
        if os.getpid() != here:
            os._exit(3)
        return b"done"

    assert aside(work)() == b"done"


def test_with_threads() -> None:
    """A process with threads is not forked."""
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    try:
        assert aside(lambda: str(os.getpid()).encode())() == str(os.getpid()).encode()
    finally:
        wait.set()
        thread.join()
