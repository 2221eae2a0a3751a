"""The mark that every process of a run carries in its environment, down to the last daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

__all__ = ["MARKER", "Mark", "marks_in", "new_mark", "with_mark"]

# The name begins with GEMINI_CLI_: with GITHUB_SHA set the CLI strips a tool shell's environment of other
# names, and a daemon without its mark could not be found (DESIGN 5.3).
MARKER = "GEMINI_CLI_GEMINIDS_MARK"


class Mark(msgspec.Struct, frozen=True):
    """Who started a process: the host (pid, and when the mark was made) and the run."""

    host_pid: int
    made_at: int
    nonce: str
    run_id: str

    @property
    def host(self) -> str:
        return f"{self.host_pid}:{self.made_at}:{self.nonce}"

    def __str__(self) -> str:
        return f"{self.host}:{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        """The mark that `str(mark)` wrote, or None for anything else."""
        parts = text.split(":")
        if len(parts) != 4 or not (parts[0].isdecimal() and parts[1].isdecimal() and parts[2] and parts[3]):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def host_is_alive(self) -> bool:
        """Whether the process that made this mark still runs: same pid, and not younger than the mark."""
        import psutil  # imported late: 34 ms

        try:
            host = psutil.Process(self.host_pid)
            # Two seconds of slack: a process's start is counted from a boot time that is known to the second.
            return host.status() != psutil.STATUS_ZOMBIE and host.create_time() <= self.made_at / 1000 + 2
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


_nonce = (0, "")


def _host_nonce() -> str:
    """One random word a host process; a fork is a host of its own."""
    global _nonce
    if _nonce[0] != os.getpid():
        _nonce = (os.getpid(), os.urandom(6).hex())
    return _nonce[1]


def new_mark(run_id: str) -> Mark:
    """A mark of this host process for one run."""
    return Mark(os.getpid(), int(time.time() * 1000), _host_nonce(), run_id)


def with_mark(environ: Mapping[str, str], mark: Mark) -> dict[str, str]:
    """The environment with the mark added: a run within a run carries both, so that either can end it."""
    before = environ.get(MARKER, "").split()
    return {**environ, MARKER: " ".join([*before, str(mark)])}


def marks_in(environ: Mapping[str, str]) -> list[Mark]:
    """The marks that an environment carries, the outermost first."""
    found = (Mark.parse(word) for word in environ.get(MARKER, "").split())
    return [mark for mark in found if mark is not None]
