"""Connect to the pool's owner: start one if there is none, and replace one of another version."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.log import get_logger
from geminids.warm.owner.owner_place import OwnerPlace, peer_of
from geminids.warm.owner.owner_wire import PROTOCOL, Hello, Leave, as_line, greeting_of

__all__ = ["Link", "find_owner", "our_hello", "reach_owner", "start_owner"]

_log = get_logger("warm")

# Seconds for an owner to greet, and for a new one to start; after that the run does without the owner.
_GREETING = 3.0
_START = 10.0
_PAUSE = 0.01
_LONGEST = 4096
_STARTS = 3
# The variables that Python needs; each order brings those of its run.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_BEGINS = ("LC_", "PYTHON", "XDG_", "GEMINI_CLI_GEMINIDS_")


class Link(msgspec.Struct, frozen=True):
    """A connection to an owner that has greeted; `pid` is the owner's, as the system knows it where it does."""

    sock: socket.socket
    hello: Hello
    pid: int

    @property
    def is_ours(self) -> bool:
        """Whether the owner has our version: no other version understands our messages."""
        ours = our_hello()
        return (self.hello.protocol, self.hello.version) == (ours.protocol, ours.version)

    def close(self) -> None:
        self.sock.close()


def our_hello() -> Hello:
    from geminids.version import __version__

    return Hello(protocol=PROTOCOL, version=__version__, uid=os.getuid(), pid=os.getpid())


def find_owner(place: OwnerPlace, timeout: float = _GREETING) -> Link | None:
    """Connect to the running owner; None if there is none. Raises `GeminidsError` if it cannot be used."""
    sock = place.connect(timeout)
    if sock is None:
        return None
    try:
        sock.sendall(as_line(our_hello()))
        line = _first_line(sock)
    except TimeoutError:
        sock.close()
        hint = "End it with `geminids warm stop`."
        raise GeminidsError(f"the pool's owner does not answer within {timeout:g} s", hint=hint) from None
    except OSError:
        line = b""
    hello = greeting_of(line)
    if hello is None:
        sock.close()
        if line:
            raise GeminidsError(f"what listens at {place.socket} is no pool's owner")
        return None  # it has just ended
    return Link(sock, hello, peer_of(sock).pid or hello.pid)


def _first_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST:
        chunk = sock.recv(_LONGEST)
        if not chunk:
            return b""
        line += chunk
    return line


def reach_owner(places: Places) -> Link:
    """Connect to an owner of this version, and start one if needed; raises `GeminidsError`."""
    place = OwnerPlace(places)
    place.check()
    until = time.monotonic() + _START
    started: list[subprocess.Popen[bytes]] = []
    try:
        while time.monotonic() < until:
            link = find_owner(place)
            if link is not None and link.is_ours:
                return link
            if link is not None:
                _make_way(link)
            # If it has already ended, another owner was first, or it cannot run here.
            if not started or (started[-1].poll() is not None and len(started) < _STARTS):
                started.append(start_owner(place, places))
            time.sleep(_PAUSE)
    finally:
        for one in started:
            one.returncode = one.poll() or 0  # it outlives us, and nobody waits for it
    raise GeminidsError(f"the pool's owner could not be started within {_START:g} s (see {place.log})")


def _make_way(link: Link) -> None:
    """Ask an owner of another version to release the socket now and to end after its runs."""
    try:
        link.sock.sendall(as_line(Leave()))
        link.sock.recv(1)  # it closes
    except OSError:
        pass
    link.close()


def start_owner(place: OwnerPlace, places: Places) -> subprocess.Popen[bytes]:
    """Start an owner that outlives us, detached from our terminal; raises `GeminidsError`."""
    try:
        with open(os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log:
            started = subprocess.Popen(
                [sys.executable, "-P", "-m", "geminids.warm.owner.owner_main"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=_environ(os.environ, places),
                start_new_session=True,
            )
    except OSError as error:
        raise GeminidsError(f"the pool's owner could not be started: {error.strerror or error}") from None
    _log.info("started the pool's owner: pid %d", started.pid)
    return started


def _environ(environ: Mapping[str, str], places: Places) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_BEGINS)}
    package = str(Path(__file__).parents[3])
    paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
    return {**kept, "GEMINIDS_HOME": str(places.root), "PYTHONPATH": os.pathsep.join(paths)}
