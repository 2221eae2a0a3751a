"""The socket of the pool's owner, in a folder that only its user can enter, and checks of the peer."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.errors import GeminidsError

__all__ = ["OwnerPlace", "Peer", "peer_of"]

# The kernel takes 107 bytes, macOS 103.
_LONGEST = 100
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end; None for what the system does not report."""

    uid: int | None
    pid: int | None


class OwnerPlace:
    """The folder of the owner. Raises `GeminidsError` if it is not safe."""

    def __init__(self, places: Places) -> None:
        self.folder = places.root / "warm"
        self.socket = self.folder / "owner.sock"
        self.lock = self.folder / "owner.lock"
        self.log = self.folder / "owner.log"

    def check(self) -> None:
        """Create the folder if needed. It must be ours, and no other user may enter it."""
        if not hasattr(socket, "AF_UNIX"):
            raise GeminidsError("this system has no Unix sockets")
        try:
            private_dir(self.folder)
            found = os.lstat(self.folder)
        except OSError as error:
            raise GeminidsError(f"{self.folder} cannot be used: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise GeminidsError(
                f"{self.folder} belongs to another user",
                hint="Name a folder of your own with GEMINIDS_HOME.",
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(self.folder, 0o700)

    def connect(self, timeout: float) -> socket.socket | None:
        """Connect to the owner; None if none listens. Raises `GeminidsError` for a process of another user."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            with self._name(self.socket) as name:
                sock.connect(name)
            _check_peer(sock)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except OSError as error:
            sock.close()
            raise GeminidsError(
                f"{self.socket} cannot be connected to: {error.strerror or 'no answer'}"
            ) from None
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self) -> socket.socket:
        """The socket of an owner, under its name from the moment on that it can be connected to."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made = self.folder / f"new.{os.getpid()}"
        try:
            made.unlink(missing_ok=True)
            with self._name(made) as name:
                sock.bind(name)
            os.chmod(made, 0o600)
            sock.listen(128)
            sock.setblocking(False)
            os.replace(made, self.socket)
        except BaseException:
            sock.close()
            made.unlink(missing_ok=True)
            raise
        return sock

    @contextmanager
    def _name(self, path: Path) -> Iterator[str]:
        """The path, or a shorter one to the same socket: socket addresses are limited in length."""
        if len(os.fsencode(path)) <= _LONGEST:
            yield str(path)
            return
        if not os.path.isdir("/proc/self/fd"):
            raise GeminidsError(
                f"the path of the socket is too long: {path}", hint="Set GEMINIDS_HOME to a shorter one."
            )
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)


def peer_of(sock: socket.socket) -> Peer:
    """The process at the other end, as the system reports it."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        return Peer(uid, pid)
    if sys.platform == "darwin":
        _, uid = struct.unpack("II", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[:8])
        return Peer(uid, None)
    return Peer(None, None)  # the folder keeps others out


def _check_peer(sock: socket.socket) -> None:
    uid = peer_of(sock).uid
    if uid is not None and uid != os.getuid():
        raise GeminidsError(
            f"the pool's owner behind the socket is a process of another user ({uid})",
            hint="Name a folder of your own with GEMINIDS_HOME.",
        )
