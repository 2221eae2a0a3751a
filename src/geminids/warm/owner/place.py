"""Create the socket of the owner daemon, connect to it, and check the process at the other end.

The socket is in a folder that only the user who runs the daemon can enter.
"""

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

# Linux accepts socket paths of up to 107 bytes, and macOS of up to 103 bytes.
_LONGEST = 100
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end of a socket: its user id and its process id.

    A field is None if the operating system does not report it.
    """

    uid: int | None
    pid: int | None


class OwnerPlace:
    """The folder that contains the socket, the lock and the log of the owner daemon."""

    def __init__(self, places: Places) -> None:
        self.folder = places.root / "warm"
        self.socket = self.folder / "owner.sock"
        self.lock = self.folder / "owner.lock"
        self.log = self.folder / "owner.log"

    def check(self) -> None:
        """Create the folder if it does not exist, and prevent access by other users.

        Raises `GeminidsError` if the folder cannot be used, or belongs to another user.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise GeminidsError("this system has no Unix sockets", hint="Run without --warm.")
        try:
            private_dir(self.folder)
            folder_stat = os.lstat(self.folder)
        except OSError as error:
            raise GeminidsError(
                f"{self.folder} cannot be used: {error.strerror}",
                hint="Set GEMINIDS_HOME to a folder of your own.",
            ) from None
        if not stat.S_ISDIR(folder_stat.st_mode) or folder_stat.st_uid != os.getuid():
            raise GeminidsError(
                f"{self.folder} belongs to another user",
                hint="Set GEMINIDS_HOME to a folder of your own.",
            )
        if stat.S_IMODE(folder_stat.st_mode) & 0o077:
            os.chmod(self.folder, 0o700)

    def connect(self, timeout: float) -> socket.socket | None:
        """Connect to the owner daemon, and return the socket. Return None if there is no daemon.

        `timeout` is in seconds. Raises `GeminidsError` if the connection fails or takes longer, or
        if the daemon is a process of another user.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            with self._name(self.socket) as name:
                sock.connect(name)
            _check_peer(sock, self.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except OSError as error:
            sock.close()
            why = error.strerror or "no answer"
            raise GeminidsError(
                f"cannot connect to the background process for warm runs at {self.socket}: {why}",
                hint="End it with `geminids warm stop`, then try again.",
            ) from None
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self) -> socket.socket:
        """Create the socket of an owner daemon, and return it.

        The socket's file gets its final name only after clients can connect to the socket.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        draft = self.folder / f"new.{os.getpid()}"
        try:
            draft.unlink(missing_ok=True)
            with self._name(draft) as name:
                sock.bind(name)
            os.chmod(draft, 0o600)
            sock.listen(128)
            sock.setblocking(False)
            os.replace(draft, self.socket)
        except BaseException:
            sock.close()
            draft.unlink(missing_ok=True)
            raise
        return sock

    @contextmanager
    def _name(self, path: Path) -> Iterator[str]:
        """Yield a path of the socket that is short enough for the operating system.

        If `path` is too long, yield a path in /proc that leads to the same file. Raises
        `GeminidsError` if the system has no /proc.
        """
        if len(os.fsencode(path)) <= _LONGEST:
            yield str(path)
            return
        if not os.path.isdir("/proc/self/fd"):
            raise GeminidsError(
                f"the path of the socket is too long: {path}", hint="Set GEMINIDS_HOME to a shorter path."
            )
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)


def peer_of(sock: socket.socket) -> Peer:
    """Return the user id and the process id of the process at the other end of a socket."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        return Peer(uid, pid)
    if sys.platform == "darwin":
        _, uid = struct.unpack("II", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[:8])
        return Peer(uid, None)
    return Peer(None, None)  # the permissions of the folder must keep other users out


def _check_peer(sock: socket.socket, path: Path) -> None:
    uid = peer_of(sock).uid
    if uid is not None and uid != os.getuid():
        raise GeminidsError(
            f"the process that listens at {path} belongs to another user (uid {uid})",
            hint="Set GEMINIDS_HOME to a folder of your own.",
        )
