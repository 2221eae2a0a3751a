"""The mark of a run: a text that identifies the run.

All processes of the run, including daemons, inherit the mark in an environment variable. geminids
finds the processes of a run by this mark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

__all__ = ["MARKER", "Mark", "marks_in", "new_mark", "with_mark"]

# The environment variable with the marks. Its name must start with GEMINI_CLI_: if GITHUB_SHA is
# set, the CLI removes most other variables from the environment of a tool's shell. A daemon without
# its mark could not be found.
MARKER = "GEMINI_CLI_GEMINIDS_MARK"


class Mark(msgspec.Struct, frozen=True):
    """The mark of a run: it identifies the run, and the process that started the run (the host).
    All processes of the run have it in their environment.

    `made_at` is the time at which the mark was made, in Unix milliseconds. `nonce` is a random id
    of the host process.
    """

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
        """Convert `text`, a mark in the form of `str(mark)`, back to a `Mark`. Return None if
        `text` does not have this form.
        """
        parts = text.split(":")
        if len(parts) != 4 or not (parts[0].isdecimal() and parts[1].isdecimal() and parts[2] and parts[3]):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], parts[3])

    def host_is_alive(self) -> bool:
        """Return whether the host, the process that made this mark, is still running.

        The host's process id alone does not prove this: after the host has exited, another process
        can get the same id. So a process that started after the mark was made does not count as the
        host. If the system denies access to the process, return True.
        """
        import psutil  # imported late: it takes 34 ms

        try:
            host = psutil.Process(self.host_pid)
            # Allow a difference of two seconds: start times are relative to the boot time, which is
            # known only to the second.
            return host.status() != psutil.STATUS_ZOMBIE and host.create_time() <= self.made_at / 1000 + 2
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


_nonce = (0, "")


def _host_nonce() -> str:
    """Return the random id of this process. After a fork, the child process gets a new id."""
    global _nonce
    if _nonce[0] != os.getpid():
        _nonce = (os.getpid(), os.urandom(6).hex())
    return _nonce[1]


def new_mark(run_id: str) -> Mark:
    """Create a mark for one run of this process."""
    return Mark(os.getpid(), int(time.time() * 1000), _host_nonce(), run_id)


def with_mark(environ: Mapping[str, str], mark: Mark) -> dict[str, str]:
    """Return a copy of the environment with `mark` added to the marks in it.

    If this process itself belongs to a run (the outer run), the mark of the outer run stays. So the
    end of the outer run also ends the processes of this run.
    """
    outer = environ.get(MARKER, "").split()
    return {**environ, MARKER: " ".join([*outer, str(mark)])}


def marks_in(environ: Mapping[str, str]) -> list[Mark]:
    """Return the run marks in an environment. If a run was started inside another run, the mark of
    the outer run comes first. Words that do not have the form of a mark are ignored.
    """
    marks = (Mark.parse(word) for word in environ.get(MARKER, "").split())
    return [mark for mark in marks if mark is not None]
