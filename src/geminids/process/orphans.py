"""Processes of dead hosts: found by the mark that they carry, and ended where that is wanted.

A process carries the marks of all runs that it is within, the outermost first. It is an orphan when no host
that they name is alive. Where the innermost host is dead and an outer one lives, it is `sheltered`: the end of
the outer run ends it, and until then it is part of a live run. What a run has left on purpose is `kept`. What
belongs to an installation with another GEMINIDS_HOME is `elsewhere`: seen, and left to that one.
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

# A start time is counted from a boot time that is known to the second, and the clock can be set meanwhile.
_SLACK = 2.0
_POLL = 0.02
_LONGEST = 80
# A note that is younger may belong to a run whose processes we do not see yet.
_NOTE_AGE = 60.0


class Orphan(msgspec.Struct, frozen=True):
    """One process that has outlived its host: who it is, and whose it was (its innermost mark)."""

    pid: int
    started_at: float
    mark: Mark
    command: str
    age: float


class Survey(msgspec.Struct, frozen=True):
    """The processes whose innermost host is dead, the oldest first."""

    orphans: tuple[Orphan, ...] = ()
    kept: tuple[Orphan, ...] = ()
    sheltered: tuple[Orphan, ...] = ()
    elsewhere: tuple[Orphan, ...] = ()


def find_orphans(places: Places | None = None) -> Survey:
    """Look at every process of this user; our own ancestors are left out, whatever they carry."""
    judge = _Judge(Places.of() if places is None else places)
    found: dict[str, list[Orphan]] = {"orphans": [], "kept": [], "sheltered": [], "elsewhere": []}
    above = _ancestors()
    for process, value in all_marked():
        marks = marks_in({MARKER: value})
        if not marks or process.pid in above:
            continue
        try:
            if not _is_ours_to_judge(process):
                continue
            environ = process.environ()
            kind = judge(marks, environ)
            if kind is not None:
                found[kind].append(_orphan(process, marks[-1], environ))
        except (psutil.Error, OSError):
            continue  # gone meanwhile
    return Survey(
        **{kind: tuple(sorted(ones, key=lambda one: one.started_at)) for kind, ones in found.items()}
    )


def end_orphans(orphans: Iterable[Orphan], *, grace: float = 2.0) -> list[Ended]:
    """Ask them to end, wait, kill; return those that are gone, with the last signal they got.

    Before each signal pid, start time and mark are looked at again: a stranger gets none.
    """
    signalled: dict[Orphan, str] = {}
    for name, patience in (("TERM", grace), ("KILL", 1.0)):
        for orphan in orphans if name == "TERM" else list(signalled):
            if _signal(orphan, name):
                signalled[orphan] = name
        _until(lambda: all(_living(one) is None for one in signalled), patience)
    return [Ended(one.pid, one.command, name) for one, name in signalled.items() if _living(one) is None]


def forget_kept(places: Places) -> list[str]:
    """Remove the notes of kept leftovers that have all ended by now; return the ids of their runs."""
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


class _Judge:
    """Says of a process's marks what the process is; asks after each host once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._alive: dict[str, bool] = {}

    def __call__(self, marks: list[Mark], environ: Mapping[str, str]) -> str | None:
        if self._host_lives(marks[-1]):
            return None
        theirs = Places.of(environ)
        # Looked up after the host was seen dead: it writes the note before it ends.
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


def _is_ours_to_judge(process: psutil.Process) -> bool:
    """Of this user, and seen with the same pids as its host: a container's pids mean nothing here."""
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
    hide = Redactor(secrets_of(environ) | secrets_of(os.environ))
    words = hide.text(" ".join(process.cmdline()) or process.name())
    # Control characters of a command must not reach a terminal.
    command = "".join(c if c.isprintable() else " " for c in words)
    if len(command) > _LONGEST:
        command = command[: _LONGEST - 1] + "…"
    return Orphan(process.pid, started_at, mark, command, max(0.0, time.time() - started_at))


def _living(orphan: Orphan) -> psutil.Process | None:
    """The very process that was found, or None where it is gone or another has its pid."""
    try:
        process = psutil.Process(orphan.pid)
        if (
            abs(process.create_time() - orphan.started_at) > _SLACK
            or process.status() == psutil.STATUS_ZOMBIE
        ):
            return None
        carried = (marker_of(process) or "").split()
    except (psutil.Error, OSError):
        return None
    return process if str(orphan.mark) in carried else None


def _signal(orphan: Orphan, name: str) -> bool:
    process = _living(orphan)
    if process is None:
        return False
    try:
        process.kill() if name == "KILL" else process.terminate()
    except (psutil.Error, OSError):
        return False
    return True


def _until(over: Callable[[], bool], patience: float) -> None:
    until = time.monotonic() + patience
    while not over() and time.monotonic() < until:
        time.sleep(_POLL)


def _notes(places: Places) -> list[str]:
    try:
        return os.listdir(places.kept)
    except OSError:
        return []
