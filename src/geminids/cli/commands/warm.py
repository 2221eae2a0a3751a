"""`geminids warm`: the process that keeps CLIs ready for `geminids run --warm`."""

from __future__ import annotations

import os
import signal
import time

import click
import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.warm.owner.owner_place import OwnerPlace, peer_of
from geminids.warm.owner.owner_reach import Link, find_owner
from geminids.warm.owner.owner_wire import End, Ended, Leave, Look, OwnerStatus, Told, as_line, told_in

__all__ = ["warm"]

_PATIENCE = 20.0
_PAUSE = 0.02
_NOBODY = "Nothing is kept warm. The next `geminids run --warm` starts it."


@click.group()
def warm() -> None:
    """The process that keeps CLIs ready for `geminids run --warm`."""


@warm.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, or null where there is none.")
def status(as_json: bool) -> int:
    """Say whether there is one, what it keeps, and when it will end."""
    place = _place()
    link = find_owner(place) if place is not None else None
    if link is None:
        click.echo("null" if as_json else _NOBODY)
        return 0
    if not link.is_ours:
        link.close()
        told = f"process {link.pid} of geminids {link.hello.version}"
        raise GeminidsError(
            f"what is kept warm is kept by another version: {told}",
            hint="The next `geminids run --warm` replaces it; `geminids warm stop` ends it.",
        )
    found = _asked(link, Look())
    if not isinstance(found, OwnerStatus):
        raise GeminidsError("what keeps CLIs warm ended at this very moment")
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        _show(found)
    return 0


@warm.command()
def stop() -> int:
    """End it, and every process that it has started."""
    place = _place()
    if place is None:
        click.echo(_NOBODY)
        return 0
    try:
        link = find_owner(place)
    except GeminidsError:
        return _kill(place)
    if link is None:
        click.echo(_NOBODY)
        return 0
    if not link.is_ours:
        return _end_other(link)
    ended = _asked(link, End())
    if not isinstance(ended, Ended):
        click.echo(f"It ended by itself: process {link.pid}.")
        return 0
    if not _gone(ended.pid):
        return _kill(place, ended.pid)
    runs = f", and {_count(ended.runs, 'run')} with it" if ended.runs else ""
    processes = ", ".join(map(str, ended.processes))
    kept = f", with {_count(len(ended.processes), 'CLI')} ({processes})" if ended.processes else ""
    click.echo(f"Ended process {ended.pid}{kept}{runs}.")
    return 0


def _place() -> OwnerPlace | None:
    """Where an owner would be; None where none can be, and no folder is made for the question."""
    place = OwnerPlace(Places.of())
    if not place.folder.is_dir():
        return None
    place.check()
    return place


def _asked(link: Link, question: msgspec.Struct) -> Told | None:
    """The answer to a question; None where it has gone."""
    data = b""
    try:
        link.sock.settimeout(_PATIENCE)
        link.sock.sendall(as_line(question))
        while not data.endswith(b"\n"):
            chunk = link.sock.recv(65536)
            if not chunk:
                return None
            data += chunk
        return told_in(data)[0]
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        link.close()


def _show(found: OwnerStatus) -> None:
    since = time.strftime("%H:%M:%S", time.localtime(found.since))
    runs = f"{_count(found.runs, 'run')} now, {found.served} before"
    click.echo(f"Process {found.pid} of geminids {found.version}, since {since}: {runs}.")
    for one in found.processes:
        state = f"idle for {one.idle:.0f} s" if one.idle is not None else _count(one.chats, "run")
        memory = f"{one.memory / 1e6:.0f} MB"
        click.echo(f"  {one.pid}  Gemini CLI {one.version}  {state}  {_count(one.turns, 'turn')}  {memory}")
    if found.ends_in is not None:
        click.echo(f"It ends in {found.ends_in:.0f} s, unless a run comes.")


def _end_other(link: Link) -> int:
    """One of another version understands no `End`: it is told to make way, and by a signal to end."""
    try:
        link.sock.sendall(as_line(Leave()))
    except OSError:
        pass
    link.close()
    return _signalled(link.pid, signal.SIGTERM, f" of geminids {link.hello.version}")


def _kill(place: OwnerPlace, pid: int | None = None) -> int:
    """One that does not answer is ended from outside; its guard sees to its processes."""
    if pid is None:
        sock = place.connect(_PATIENCE)
        pid = peer_of(sock).pid if sock is not None else None
        if sock is not None:
            sock.close()
    if pid is None:
        raise GeminidsError(f"what listens at {place.socket} does not answer", hint="End that process.")
    return _signalled(pid, signal.SIGKILL, ", which did not answer")


def _signalled(pid: int, number: signal.Signals, what: str) -> int:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise GeminidsError(f"process {pid} cannot be ended: {error.strerror}") from None
    if not _gone(pid):
        raise GeminidsError(f"process {pid} does not end", hint=f"End it with `kill -9 {pid}`.")
    click.echo(f"Ended process {pid}{what}.")
    return 0


def _gone(pid: int) -> bool:
    """Whether it goes within its patience; in a container, nobody may ever clean up after it."""
    import psutil  # imported late: `--help` does without

    until = time.monotonic() + _PATIENCE
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)
    except psutil.NoSuchProcess:
        pass
    return True


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
