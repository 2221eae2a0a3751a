"""Find the processes of dead hosts by their mark, and end them on request.

A process carries the marks of all runs that it is inside, outermost first. It is an orphan if none
of the hosts in its marks is alive. It is `sheltered` if its innermost host is dead but an outer one
is alive: it belongs to a live run and ends with that run. It is `kept` if its run left it on
purpose. It is `elsewhere` if it belongs to an installation with another GEMINIDS_HOME; we report it
but do not end it.
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

# Start times are relative to the boot time, which is exact to a second only, and the clock can be
# changed.
_START_TOLERANCE = 2.0
_POLL = 0.02
_MAX_COMMAND = 80
# A younger note may belong to a run whose processes we do not see yet.
_NOTE_AGE = 60.0


class Orphan(msgspec.Struct, frozen=True):
    """A process that has outlived its host; `mark` is its innermost mark."""

    pid: int
    started_at: float
    mark: Mark
    command: str
    age: float


class Survey(msgspec.Struct, frozen=True):
    """The processes whose innermost host is dead, oldest first."""

    orphans: tuple[Orphan, ...] = ()
    kept: tuple[Orphan, ...] = ()
    sheltered: tuple[Orphan, ...] = ()
    elsewhere: tuple[Orphan, ...] = ()


def find_orphans(places: Places | None = None) -> Survey:
    """Classify every marked process of this user, except our own ancestors."""
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
    """Send TERM, wait, send KILL; return the processes that are gone and their last signal.

    It checks pid, start time and mark again before each signal, so that no other process gets it.
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
    """Remove the notes of runs whose kept processes have all ended; return their run ids."""
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
    """Classifies a process by its marks; checks each host only once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._alive: dict[str, bool] = {}

    def __call__(self, marks: list[Mark], environ: Mapping[str, str]) -> str | None:
        if self._host_lives(marks[-1]):
            return None
        theirs = Places.of(environ)
        # Check the note after the host: a host writes its note before it ends.
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
    """Whether it belongs to this user and our pid namespace, not to a container."""
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
    # Control characters in a command must not reach a terminal.
    command = "".join(c if c.isprintable() else " " for c in words)
    if len(command) > _MAX_COMMAND:
        command = command[: _MAX_COMMAND - 1] + "…"
    return Orphan(process.pid, started_at, mark, command, max(0.0, time.time() - started_at))


def _living(orphan: Orphan) -> psutil.Process | None:
    """Return the orphan's process; None if it is gone or another process has its pid."""
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
