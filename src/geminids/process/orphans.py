"""Find processes of runs whose host (the process that started the run) is dead, and end them on
request.

Each process of a run has the run's mark (a text that identifies the run) in its environment. If a
run was started inside another run, its processes have the marks of both runs. The mark of the outer
run comes first, and the mark of the innermost run last.

A process is classified if the host of its innermost run is dead:

- `kept`: the run left the process running on purpose.
- `sheltered`: the host of an outer run is alive. The process will end with the outer run.
- `elsewhere`: the process belongs to an installation with another GEMINIDS_HOME. It is reported but
  not ended.
- `orphans`: all other processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
import psutil

from geminids.config.paths import Places
from geminids.process.marker import MARKER, Mark, marks_in
from geminids.process.tree import Ended, all_marked, marker_of
from geminids.redact import Redactor, secrets_of

__all__ = ["Orphan", "Survey", "end_orphans", "find_orphans", "forget_kept"]

# If two start times differ by at most this many seconds, they count as equal. Start times are
# relative to the boot time, which is known only to the second, and the clock can be changed.
_START_TOLERANCE = 2.0
_POLL = 0.02
_MAX_COMMAND = 80
# Notes (files that name runs with kept processes) that are younger than this many seconds are not
# removed: the processes of the run may not be visible yet.
_NOTE_AGE = 60.0


class Orphan(msgspec.Struct, frozen=True):
    """A process of a run whose host (the process that started the run) is dead.

    `mark` identifies the run. If runs were started inside other runs, it is the innermost run.
    `started_at` is the start time in Unix seconds. `age` is the time since then in seconds. Secrets
    in `command` are masked.
    """

    pid: int
    started_at: float
    mark: Mark
    command: str
    age: float


class Survey(msgspec.Struct, frozen=True):
    """The processes of runs whose host (the process that started the run) is dead, in four groups.
    In each group, the oldest process comes first.

    `kept` processes were left running on purpose. `sheltered` processes end with an outer run.
    `elsewhere` contains the processes of installations with another GEMINIDS_HOME. `orphans`
    contains all other processes.
    """

    orphans: tuple[Orphan, ...] = ()
    kept: tuple[Orphan, ...] = ()
    sheltered: tuple[Orphan, ...] = ()
    elsewhere: tuple[Orphan, ...] = ()


def find_orphans(places: Places | None = None) -> Survey:
    """Find all processes of this user that belong to a run whose host (the process that started the
    run) is dead, and classify them. This process and its ancestors are left out.

    `places` are the folders of this installation. If it is None, the environment variables of this
    process select the folders.
    """
    classify = _Classifier(Places.of() if places is None else places)
    by_kind: dict[str, list[Orphan]] = {"orphans": [], "kept": [], "sheltered": [], "elsewhere": []}
    ancestors = _ancestors()
    for process, value in all_marked():
        marks = marks_in({MARKER: value})
        if not marks or process.pid in ancestors:
            continue
        try:
            if not _is_in_scope(process):
                continue
            environ = process.environ()
            kind = classify(marks, environ)
            if kind is not None:
                by_kind[kind].append(_orphan(process, marks[-1], environ))
        except (psutil.Error, OSError):
            continue  # it has exited
    return Survey(
        **{
            kind: tuple(sorted(orphans, key=lambda orphan: orphan.started_at))
            for kind, orphans in by_kind.items()
        }
    )


def end_orphans(orphans: Iterable[Orphan], *, grace: float = 2.0) -> list[Ended]:
    """End these processes: send SIGTERM, wait up to `grace` seconds, and send SIGKILL to those that
    are still running. Return the processes that have exited, each with the last signal it got.

    Before each signal, the process id, the start time and the run's mark are checked again. So no
    unrelated process gets the signal.
    """
    signalled: dict[Orphan, str] = {}
    for name, timeout in (("TERM", grace), ("KILL", 1.0)):
        for orphan in orphans if name == "TERM" else list(signalled):
            if _signal(orphan, name):
                signalled[orphan] = name
        _wait_for(lambda: all(_living(orphan) is None for orphan in signalled), timeout)
    return [
        Ended(orphan.pid, orphan.command, name)
        for orphan, name in signalled.items()
        if _living(orphan) is None
    ]


def forget_kept(places: Places) -> list[str]:
    """Remove the notes of runs that left processes running, if all these processes have exited.
    Return the ids of the runs whose notes were removed.

    A note shows that a run left processes running on purpose. It is an empty file with the run's id
    as its name. A note that is less than one minute old is not removed.
    """
    before = time.time() - _NOTE_AGE
    stale: set[str] = set()
    for note in _notes(places):
        try:
            if (places.kept / note).stat().st_mtime <= before:
                stale.add(note)
        except OSError:
            continue
    if stale:
        stale -= {mark.run_id for _, value in all_marked() for mark in marks_in({MARKER: value})}
    removed = []
    for note in sorted(stale):
        try:
            (places.kept / note).unlink()
            removed.append(note)
        except OSError:
            continue
    return removed


class _Classifier:
    """Decides to which group of the module's docstring a process belongs.

    The environment of the process shows this: it contains GEMINIDS_HOME, and one mark for each run
    that the process belongs to. A mark identifies a run and its host (the process that started the
    run). Each host is checked only once.

    A call returns the name of the group, or None if the host of the innermost run is alive.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._alive: dict[str, bool] = {}

    def __call__(self, marks: list[Mark], environ: Mapping[str, str]) -> str | None:
        if self._host_lives(marks[-1]):
            return None
        theirs = Places.of(environ)
        # Check the host first and the note later, because a host writes the note before it ends.
        if any(_is_kept(mark, places) for mark in marks for places in (self._places, theirs)):
            return "kept"
        if any(self._host_lives(mark) for mark in marks):
            return "sheltered"
        return "orphans" if theirs == self._places else "elsewhere"

    def _host_lives(self, mark: Mark) -> bool:
        if mark.host not in self._alive:
            self._alive[mark.host] = mark.host_is_alive()
        return self._alive[mark.host]


def _is_kept(mark: Mark, places: Places) -> bool:
    return os.path.basename(mark.run_id) == mark.run_id and (places.kept / mark.run_id).exists()


def _is_in_scope(process: psutil.Process) -> bool:
    """Return whether a process is running, belongs to this user, and is in the same pid namespace
    as this process. A process in a container has another namespace, so it is not in scope.
    """
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    if hasattr(os, "getuid") and process.uids().real != os.getuid():
        return False
    try:
        return os.stat(f"/proc/{process.pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return not os.path.exists("/proc/self/ns/pid")


def _ancestors() -> set[int]:
    try:
        return {parent.pid for parent in psutil.Process().parents()}
    except psutil.Error:
        return set()


def _orphan(process: psutil.Process, mark: Mark, environ: Mapping[str, str]) -> Orphan:
    started_at = process.create_time()
    redactor = Redactor(secrets_of(environ) | secrets_of(os.environ))
    words = redactor.text(" ".join(process.cmdline()) or process.name())
    # Replace control characters, because a command must not send them to a terminal.
    command = "".join(c if c.isprintable() else " " for c in words)
    if len(command) > _MAX_COMMAND:
        command = command[: _MAX_COMMAND - 1] + "…"
    return Orphan(process.pid, started_at, mark, command, max(0.0, time.time() - started_at))


def _living(orphan: Orphan) -> psutil.Process | None:
    """Return the process of `orphan`. Return None if the process has exited, or if another process
    has the same process id now.
    """
    try:
        process = psutil.Process(orphan.pid)
        if (
            abs(process.create_time() - orphan.started_at) > _START_TOLERANCE
            or process.status() == psutil.STATUS_ZOMBIE
        ):
            return None
        marks = (marker_of(process) or "").split()
    except (psutil.Error, OSError):
        return None
    return process if str(orphan.mark) in marks else None


def _signal(orphan: Orphan, name: str) -> bool:
    process = _living(orphan)
    if process is None:
        return False
    try:
        process.kill() if name == "KILL" else process.terminate()
    except (psutil.Error, OSError):
        return False
    return True


def _wait_for(condition: Callable[[], bool], timeout: float) -> None:
    until = time.monotonic() + timeout
    while not condition() and time.monotonic() < until:
        time.sleep(_POLL)


def _notes(places: Places) -> list[str]:
    try:
        return os.listdir(places.kept)
    except OSError:
        return []
