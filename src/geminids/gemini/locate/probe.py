"""Run a short command with a time limit, and remember what it printed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from geminids.config.paths import Places, write_private
from geminids.log import get_logger

if TYPE_CHECKING:
    import subprocess

__all__ = ["Answer", "Sighting", "answer_of", "recall", "remember"]

_log = get_logger("gemini")


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


_MOST = 200


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer. `path` is the real program where the asked one was a shim; `at` is in Unix seconds."""

    version: str | None
    path: str | None = None
    at: float = 0.0


def recall(places: Places, program: Path, *, max_age: float | None = None) -> Sighting | None:
    """The last answer of `program`, unless its file has changed since or the answer is too old."""
    key = _key(program)
    sighting = _load(places).get(key) if key else None
    if sighting is None or (max_age is not None and not 0 <= time.time() - sighting.at <= max_age):
        return None
    return sighting


def remember(places: Places, program: Path, version: str | None, path: str | None = None) -> Sighting:
    """Keep an answer. A disk that cannot be written costs a process next time, nothing else."""
    sighting = Sighting(version, path, time.time())
    key = _key(program)
    if key is None:
        return sighting
    known = _load(places)
    known[key] = sighting
    newest = dict(sorted(known.items(), key=lambda item: item[1].at)[-_MOST:])
    with suppress(OSError):
        write_private(_file(places), msgspec.json.encode(newest))
    return sighting


def _file(places: Places) -> Path:
    return places.root / "seen.json"


def _load(places: Places) -> dict[str, Sighting]:
    try:
        return msgspec.json.decode(_file(places).read_bytes(), type=dict[str, Sighting])
    except (OSError, msgspec.DecodeError):
        return {}


def _key(program: Path) -> str | None:
    # The name as called is part of the key: the shims of mise and volta are all links to one binary.
    try:
        real = program.resolve(strict=True)
        stat = real.stat()
    except OSError:
        return None
    return f"{program}|{real}|{stat.st_mtime_ns}|{stat.st_size}"
