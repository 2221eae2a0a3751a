"""`geminids warm`: show or stop the warm process, which keeps CLIs ready for `run --warm`."""

from __future__ import annotations

import os
import signal
import time

import click
import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.warm.owner.place import OwnerPlace, peer_of
from geminids.warm.owner.protocol import (
    End,
    OwnerEnded,
    OwnerMessage,
    OwnerStatus,
    RetireOwner,
    StatusRequest,
    as_line,
    decode_owner_messages,
)
from geminids.warm.owner.reach import Link, find_owner

__all__ = ["warm"]

_TIMEOUT = 20.0
_PAUSE = 0.02
_NOT_RUNNING = "No warm process is running. The next `geminids run --warm` starts one."


@click.group()
def warm() -> None:
    """Show or stop the process that keeps CLIs ready for `geminids run --warm`."""


@warm.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, or null if no process is running."
)
def status(as_json: bool) -> int:
    """Show the warm process, its CLIs, and when it will end."""
    place = _place()
    link = find_owner(place) if place is not None else None
    if link is None:
        click.echo("null" if as_json else _NOT_RUNNING)
        return 0
    if not link.is_ours:
        link.close()
        raise GeminidsError(
            f"the warm process (pid {link.pid}) was started by another version of geminids ({link.hello.version})",
            hint="The next `geminids run --warm` replaces it; `geminids warm stop` ends it.",
        )
    owner = _request(link, StatusRequest())
    if not isinstance(owner, OwnerStatus):
        raise GeminidsError(
            "the warm process ended before it answered", hint="Run `geminids warm status` again."
        )
    if as_json:
        click.echo(msgspec.json.encode(owner).decode())
    else:
        _show(owner)
    return 0


@warm.command()
def stop() -> int:
    """End the warm process and every process that it started."""
    place = _place()
    if place is None:
        click.echo(_NOT_RUNNING)
        return 0
    try:
        link = find_owner(place)
    except GeminidsError:
        return _kill(place)
    if link is None:
        click.echo(_NOT_RUNNING)
        return 0
    if not link.is_ours:
        return _end_other(link)
    ended = _request(link, End())
    if not isinstance(ended, OwnerEnded):
        click.echo(f"Process {link.pid} had already ended.")
        return 0
    if not _wait_until_gone(ended.pid):
        return _kill(place, ended.pid)
    runs = f", and stopped {_count(ended.runs, 'run')}" if ended.runs else ""
    processes = ", ".join(map(str, ended.processes))
    clis = f", with {_count(len(ended.processes), 'CLI')} ({processes})" if ended.processes else ""
    click.echo(f"Ended process {ended.pid}{clis}{runs}.")
    return 0


def _place() -> OwnerPlace | None:
    """Return the folder and the socket of the warm process, which keeps CLIs ready for the next
    run.

    Return None if the folder does not exist: then there is no warm process.
    """
    place = OwnerPlace(Places.of())
    if not place.folder.is_dir():
        return None
    place.check()
    return place


def _request(link: Link, request: msgspec.Struct) -> OwnerMessage | None:
    """Send a request to the warm process, close the connection, and return the response. Return
    None if there is no valid response."""
    data = b""
    try:
        link.sock.settimeout(_TIMEOUT)
        link.sock.sendall(as_line(request))
        while not data.endswith(b"\n"):
            chunk = link.sock.recv(65536)
            if not chunk:
                return None
            data += chunk
        return decode_owner_messages(data)[0]
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        link.close()


def _show(owner: OwnerStatus) -> None:
    since = time.strftime("%H:%M:%S", time.localtime(owner.since))
    runs = f"{_count(owner.runs, 'run')} now, {owner.served} before"
    click.echo(f"Process {owner.pid} of geminids {owner.version}, started at {since}: {runs}.")
    for cli in owner.processes:
        state = f"idle for {cli.idle:.0f} s" if cli.idle is not None else _count(cli.chats, "run")
        memory = f"{cli.memory / 1e6:.0f} MB"
        click.echo(f"  {cli.pid}  Gemini CLI {cli.version}  {state}  {_count(cli.turns, 'turn')}  {memory}")
    if owner.ends_in is not None:
        click.echo(f"The process ends in {owner.ends_in:.0f} s, unless a run starts.")


def _end_other(link: Link) -> int:
    """End the warm process of another version of geminids: ask it to retire (`RetireOwner`), and
    send SIGTERM. Return the exit code of the command.

    The message `End` is not sent, because another version may not know it.
    """
    try:
        link.sock.sendall(as_line(RetireOwner()))
    except OSError:
        pass
    link.close()
    return _signal(link.pid, signal.SIGTERM, f" of geminids {link.hello.version}")


def _kill(place: OwnerPlace, pid: int | None = None) -> int:
    """Kill a warm process that does not respond, and return the exit code of the command.

    The guard then ends the processes that the warm process started. The guard is a small process
    that cleans up after a process that was killed. Without `pid`, kill the process that listens on
    the socket; raise `GeminidsError` if the pid of that process is unknown.
    """
    if pid is None:
        sock = place.connect(_TIMEOUT)
        pid = peer_of(sock).pid if sock is not None else None
        if sock is not None:
            sock.close()
    if pid is None:
        raise GeminidsError(
            f"the process that listens at {place.socket} does not respond, and its pid is unknown",
            hint="Find the process that uses this socket, and end it.",
        )
    return _signal(pid, signal.SIGKILL, ", which did not respond")


def _signal(pid: int, number: signal.Signals, description: str) -> int:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise GeminidsError(
            f"cannot end process {pid}: {error.strerror}",
            hint=f"See whose process it is: ps -o user,args -p {pid}",
        ) from None
    if not _wait_until_gone(pid):
        raise GeminidsError(
            f"process {pid} received {number.name}, but did not end within {_TIMEOUT:.0f} s",
            hint=f"Wait, then check it with `ps -p {pid}`; if it is still running, use `kill -9 {pid}`.",
        )
    click.echo(f"Ended process {pid}{description}.")
    return 0


def _wait_until_gone(pid: int) -> bool:
    """Wait until a process has ended, at most 20 seconds. Return whether the process has ended.

    A zombie (an ended process whose exit code was not read by its parent) counts as ended. In a
    container, a zombie can stay forever, because there may be no process that reads the exit code.
    """
    import psutil  # imported late: `--help` does not need it

    until = time.monotonic() + _TIMEOUT
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)
    except psutil.NoSuchProcess:
        pass
    return True


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
