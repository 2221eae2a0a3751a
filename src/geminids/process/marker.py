"""The mark that every process of a run, daemons included, carries in its environment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

__all__ = ["MARKER", "Mark", "marks_in", "new_mark", "with_mark"]

# The name starts with GEMINI_CLI_: if GITHUB_SHA is set, the CLI removes other names from a tool
# shell's environment, and we could not find a daemon without its mark (DESIGN 5.3).
MARKER = "GEMINI_CLI_GEMINIDS_MARK"


class Mark(msgspec.Struct, frozen=True):
    """Identifies who started a process: the host (pid, and the time of the mark) and the run."""

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
        """Parse the output of `str(mark)`; None for any other text."""
        parts = text.split(":")
        if len(parts) != 4 or not (parts[0].isdecimal() and parts[1].isdecimal() and parts[2] and parts[3]):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def host_is_alive(self) -> bool:
        """Whether the process that made this mark still runs: same pid, started before it."""
        import psutil  # imported late: 34 ms

        try:
            host = psutil.Process(self.host_pid)
            # Two seconds of tolerance: start times are relative to the boot time, which is exact to
            # a second only.
            return host.status() != psutil.STATUS_ZOMBIE and host.create_time() <= self.made_at / 1000 + 2
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


_nonce = (0, "")


def _host_nonce() -> str:
    """Return the random id of this host process; a fork gets a new one."""
    global _nonce
    if _nonce[0] != os.getpid():
        _nonce = (os.getpid(), os.urandom(6).hex())
    return _nonce[1]


def new_mark(run_id: str) -> Mark:
    """Create this host's mark for one run."""
    return Mark(os.getpid(), int(time.time() * 1000), _host_nonce(), run_id)


def with_mark(environ: Mapping[str, str], mark: Mark) -> dict[str, str]:
    """Add the mark to those of outer runs, so that the end of any of these runs ends this one."""
    outer = environ.get(MARKER, "").split()
    return {**environ, MARKER: " ".join([*outer, str(mark)])}


def marks_in(environ: Mapping[str, str]) -> list[Mark]:
    """Return the marks in an environment, outermost first."""
    marks = (Mark.parse(word) for word in environ.get(MARKER, "").split())
    return [mark for mark in marks if mark is not None]
