"""Connect to the owner daemon, the background process that serves runs.

If there is no owner daemon, this module starts one. A daemon of another geminids version is
replaced.
"""

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
from geminids.version import __version__
from geminids.warm.owner.place import OwnerPlace, peer_of
from geminids.warm.owner.protocol import PROTOCOL, Hello, RetireOwner, as_line, greeting_of

__all__ = ["Link", "find_owner", "our_hello", "reach_owner", "start_owner"]

_log = get_logger("warm")

# An owner daemon must answer within `_GREETING` seconds, and a new daemon must start within
# `_START` seconds. Otherwise the client starts the CLI itself.
_GREETING = 3.0
_START = 10.0
_PAUSE = 0.01
_LONGEST = 4096
_STARTS = 3
# The owner daemon gets only these variables, which Python needs. Each run sends its own variables.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "TZ", "VIRTUAL_ENV")
_KEPT_BEGINS = ("LC_", "PYTHON", "XDG_", "GEMINI_CLI_GEMINIDS_")


class Link(msgspec.Struct, frozen=True):
    """A connection to the owner daemon.

    `hello` is the greeting that the daemon has sent. `pid` is the daemon's process id.
    """

    sock: socket.socket
    hello: Hello
    pid: int

    @property
    def is_ours(self) -> bool:
        """Whether the owner daemon has the same geminids version as this process.

        A daemon of another version cannot read most messages of this process.
        """
        ours = our_hello()
        return (self.hello.protocol, self.hello.version) == (ours.protocol, ours.version)

    def close(self) -> None:
        self.sock.close()


def our_hello() -> Hello:
    return Hello(protocol=PROTOCOL, version=__version__, uid=os.getuid(), pid=os.getpid())


def find_owner(place: OwnerPlace, timeout: float = _GREETING) -> Link | None:
    """Connect to the running owner daemon. Return None if there is no daemon.

    `timeout` is in seconds. Raises `GeminidsError` if the daemon does not answer in time, if it
    belongs to another user, or if a program other than geminids listens at the socket.
    """
    sock = place.connect(timeout)
    if sock is None:
        return None
    try:
        sock.sendall(as_line(our_hello()))
        line = _first_line(sock)
    except TimeoutError:
        sock.close()
        hint = "End it with `geminids warm stop`."
        raise GeminidsError(
            f"the background process for warm runs did not answer within {timeout:g} s", hint=hint
        ) from None
    except OSError:
        line = b""
    hello = greeting_of(line)
    if hello is None:
        sock.close()
        if line:
            raise GeminidsError(
                f"another program listens at {place.socket}, not the geminids process for warm runs",
                hint="End that program, or set GEMINIDS_HOME to another folder.",
            )
        return None  # the daemon has just ended
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
    """Connect to the owner daemon that has the same geminids version as this process.

    If no daemon is running, start one. If a daemon of another version is running, replace it.
    Raises `GeminidsError` if no daemon can be started within 10 seconds, or if the running daemon
    cannot be used, for example because it does not answer.
    """
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
                _retire(link)
            # A daemon that we started may have ended, because it has found another daemon or cannot
            # run here. Then start another one, but only a few times.
            if not started or (started[-1].poll() is not None and len(started) < _STARTS):
                started.append(start_owner(place, places))
            time.sleep(_PAUSE)
    finally:
        for owner in started:
            owner.returncode = owner.poll() or 0  # the daemon outlives this process: do not wait
    raise GeminidsError(
        f"the background process for warm runs could not be started within {_START:g} s",
        hint=f"Read {place.log}, then try again, or run without --warm.",
    )


def _retire(link: Link) -> None:
    """Ask an owner daemon of another version to release its socket, and wait until it has done so.

    The daemon ends after its last run.
    """
    try:
        link.sock.sendall(as_line(RetireOwner()))
        link.sock.recv(1)  # returns when the daemon closes the connection
    except OSError:
        pass
    link.close()


def start_owner(place: OwnerPlace, places: Places) -> subprocess.Popen[bytes]:
    """Start an owner daemon that outlives this process and does not use its terminal.

    Raises `GeminidsError` if the daemon cannot be started.
    """
    try:
        with open(os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log:
            started = subprocess.Popen(
                [sys.executable, "-P", "-m", "geminids.warm.owner.main"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=_environ(os.environ, places),
                start_new_session=True,
            )
    except OSError as error:
        raise GeminidsError(
            f"the background process for warm runs could not be started: {error.strerror or error}",
            hint="Try again, or run without --warm.",
        ) from None
    _log.info("started the background process for warm runs: pid %d", started.pid)
    return started


def _environ(environ: Mapping[str, str], places: Places) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_BEGINS)}
    package = str(Path(__file__).parents[3])
    paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
    return {**kept, "GEMINIDS_HOME": str(places.root), "PYTHONPATH": os.pathsep.join(paths)}
