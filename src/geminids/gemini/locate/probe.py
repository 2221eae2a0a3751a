"""Run a short command with a time limit, and cache the versions that programs print."""

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

__all__ = ["CommandResult", "Probe", "load_probe", "run_command", "store_probe"]

_log = get_logger("gemini")


class CommandResult(NamedTuple):
    """The result of a command. `code` is None if it timed out or could not be started."""

    code: int | None
    out: str
    err: str


def run_command(
    argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, timeout: float
) -> CommandResult:
    """Run `argv` and return its result. Does not raise if the command fails or is missing."""
    import subprocess  # imported late: most callers never spawn
    import tempfile

    # Use files, not pipes: with a pipe that a grandchild keeps open we would wait after the
    # command's end.
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
            return CommandResult(None, "", f"{argv[0]}: {error.strerror or error}")
        _log.info("spawned pid %d: %s", child.pid, " ".join(argv))
        try:
            code: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            _kill(child)
            code = None
        except BaseException:  # Ctrl-C in the middle of an install
            _kill(child)
            raise
        out.seek(0)
        err.seek(0)
        stdout, stderr = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    timed_out = f"no answer within {timeout:g} s" if code is None else ""
    return CommandResult(code, stdout, stderr + timed_out)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        import signal

        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    else:
        child.kill()
    child.wait()


_MAX_ENTRIES = 200


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cached version of a program; `path` is the program behind a shim, `at` is Unix time."""

    version: str | None
    path: str | None = None
    at: float = 0.0


def load_probe(places: Places, program: Path, *, max_age: float | None = None) -> Probe | None:
    """Return the cached probe of `program`; None if it is too old or the file has changed."""
    key = _key(program)
    probe = _load(places).get(key) if key else None
    if probe is None or (max_age is not None and not 0 <= time.time() - probe.at <= max_age):
        return None
    return probe


def store_probe(places: Places, program: Path, version: str | None, path: str | None = None) -> Probe:
    """Cache a probe. If the file cannot be written, the next call only has to probe again."""
    probe = Probe(version, path, time.time())
    key = _key(program)
    if key is None:
        return probe
    probes = _load(places)
    probes[key] = probe
    newest = dict(sorted(probes.items(), key=lambda item: item[1].at)[-_MAX_ENTRIES:])
    with suppress(OSError):
        write_private(_file(places), msgspec.json.encode(newest))
    return probe


def _file(places: Places) -> Path:
    return places.root / "seen.json"


def _load(places: Places) -> dict[str, Probe]:
    try:
        return msgspec.json.decode(_file(places).read_bytes(), type=dict[str, Probe])
    except (OSError, msgspec.DecodeError):
        return {}


def _key(program: Path) -> str | None:
    # The key includes the unresolved path: all shims of mise and volta are links to one binary.
    try:
        real = program.resolve(strict=True)
        stat = real.stat()
    except OSError:
        return None
    return f"{program}|{real}|{stat.st_mtime_ns}|{stat.st_size}"
