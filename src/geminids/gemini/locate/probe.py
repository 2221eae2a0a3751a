"""Run a command with a time limit, and cache the version that a program prints."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from geminids.config.paths import Places, write_private
from geminids.ids import new_run_id
from geminids.log import get_logger
from geminids.process.marker import Mark, new_mark, with_mark

if TYPE_CHECKING:
    import subprocess

__all__ = ["CommandResult", "Probe", "load_probe", "run_command", "store_probe", "time_limit"]

_log = get_logger("gemini")

# The last seconds of a time limit, which are reserved for ending the processes of a command.
_ENDING = 0.8
# Seconds to wait for the exit code of a command that was killed.
_REAP = 0.2


class CommandResult(NamedTuple):
    """The exit code, stdout and stderr of a command.

    `code` is None if the command could not be started, or was killed after the time limit.
    """

    code: int | None
    out: str
    err: str


class _TimeLimit(NamedTuple):
    seconds: float
    until: float
    """The time on the clock `time.monotonic` at which `run_command` stops a running command."""


_time_limit: ContextVar[_TimeLimit | None] = ContextVar("geminids_time_limit", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Set a time limit for this `with` block: `run_command` stops a command that is still running
    when the time is up. The limit includes the time to end the command's processes.
    """
    until = time.monotonic() + seconds - min(_ENDING, seconds / 4)
    token = _time_limit.set(_TimeLimit(seconds, until))
    try:
        yield
    finally:
        _time_limit.reset(token)


def _is_time_up() -> bool:
    limit = _time_limit.get()
    return limit is not None and time.monotonic() >= limit.until


def run_command(
    argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, timeout: float
) -> CommandResult:
    """Run a command for at most `timeout` seconds, and return its exit code and output.

    No error is raised: if the command fails, takes too long or does not exist, the result says so.
    Before the function returns, it ends all processes that the command started. In a `time_limit`
    block, the command may get less time than `timeout`.
    """
    import subprocess  # imported late: most runs find the version in the cache

    limit, seconds = _time_limit.get(), timeout
    if limit is not None:
        timeout, seconds = min(timeout, limit.until - time.monotonic()), min(timeout, limit.seconds)
        if timeout <= 0:
            return CommandResult(None, "", f"no answer within {seconds:g} s")
    mark = new_mark(new_run_id())
    # Use files, not pipes: if a grandchild kept a pipe open, we would wait although the command has
    # ended.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=with_mark(environ, mark),
                start_new_session=True,
            )
        except OSError as error:
            _log.info("cannot run %s", argv[0], error=error)
            return CommandResult(None, "", f"{argv[0]}: {error.strerror or error}")
        _log.info("spawned pid %d: %s", child.pid, " ".join(argv))
        try:
            code: int | None = child.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also after Ctrl-C in the middle of an install
            _end_tree(child, mark)
        out.seek(0)
        err.seek(0)
        stdout, stderr = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    timed_out = f"no answer within {seconds:g} s" if code is None else ""
    return CommandResult(code, stdout, stderr + timed_out)


class _Command:
    """Wraps a `Popen` object in the interface that `end_now` needs: a process id and an
    exit code.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid = popen.pid
        self._popen = popen

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()


def _end_tree(child: subprocess.Popen[bytes], mark: Mark) -> None:
    """Kill the command and all processes that it started, even those in their own session. `mark`
    is the text in their environment that identifies them.
    """
    import subprocess

    from geminids.process.terminate import end_now  # imported late: it imports psutil (34 ms)

    for ended in end_now(_Command(child), mark):
        _log.info("ended pid %d: %s", ended.pid, ended.command)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP)


_MAX_ENTRIES = 200


class Probe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cache entry with the version that a program printed. `version` is None if the program
    printed no version.

    If the program is a shim (a small program that starts another one), `path` is the path of the
    other program; otherwise None. `at` is the time of the check in Unix seconds.
    """

    version: str | None
    path: str | None = None
    at: float = 0.0


def load_probe(places: Places, program: Path, *, max_age: float | None = None) -> Probe | None:
    """Return the cache entry with the version of `program`.

    Return None if there is no entry, if it is older than `max_age` seconds, or if the program's
    file has been changed or removed since.
    """
    key = _key(program)
    probe = _load(places).get(key) if key else None
    if probe is None or (max_age is not None and not 0 <= time.time() - probe.at <= max_age):
        return None
    return probe


def store_probe(places: Places, program: Path, version: str | None, path: str | None = None) -> Probe:
    """Store the version of `program` in the cache, and return the cache entry. If `program` is a
    shim (a small program that starts another one), `path` is the path of the other program.

    If the cache cannot be written, the error is ignored, and the next run starts the program again.
    If the time of a `time_limit` block is up before the program prints a version, nothing is
    stored: the program may only be slow.
    """
    probe = Probe(version, path, time.time())
    if version is None and _is_time_up():
        return probe
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
    # The key contains the path before links are resolved, because all shims of mise and volta are
    # links to the same program.
    try:
        real = program.resolve(strict=True)
        stat = real.stat()
    except OSError:
        return None
    return f"{program}|{real}|{stat.st_mtime_ns}|{stat.st_size}"
