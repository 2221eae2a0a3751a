"""Run one short command to its end: bounded in time, its whole group ended if it does not stop."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from geminids.log import get_logger

if TYPE_CHECKING:
    import subprocess

__all__ = ["Answer", "answer_of"]

_log = get_logger("toolchain")


class Answer(NamedTuple):
    """What a command said. `code` is None where it did not end in time or could not be started."""

    code: int | None
    out: str
    err: str


def answer_of(argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, timeout: float) -> Answer:
    """Run `argv` and return its answer; never raises for what the command does."""
    import subprocess  # imported late: most callers never spawn
    import tempfile

    # Files, not pipes: a grandchild that keeps a pipe open would hold us past the command's end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            _log.info("cannot run %s", argv[0], error=error)
            return Answer(None, "", f"{argv[0]}: {error.strerror or error}")
        _log.info("spawned pid %d: %s", child.pid, " ".join(argv))
        try:
            code: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            _end(child)
            code = None
        except BaseException:  # Ctrl-C in the middle of an install
            _end(child)
            raise
        out.seek(0)
        err.seek(0)
        said = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    late = f"no answer within {timeout:g} s" if code is None else ""
    return Answer(code, said[0], said[1] + late)


def _end(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        import signal

        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    else:
        child.kill()
    child.wait()
