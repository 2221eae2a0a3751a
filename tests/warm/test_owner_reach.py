"""Tests of how a client finds, starts and replaces the pool's owner, and how other users are kept
out."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.warm.owner.place import OwnerPlace
from geminids.warm.owner.protocol import (
    End,
    Hello,
    OwnerStatus,
    StatusRequest,
    as_line,
    decode_owner_messages,
)
from geminids.warm.owner.reach import find_owner, our_hello, reach_owner, start_owner

NOBODY = 65534


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Paths in a temporary folder. An owner that the test leaves running is ended."""
    places = Places(tmp_path / "geminids")
    monkeypatch.setenv("GEMINIDS_HOME", str(places.root))
    yield places
    place = OwnerPlace(places)
    if place.folder.is_dir():
        link = find_owner(place)
        if link is not None:
            link.sock.sendall(as_line(End()))
            _wait_for_end(link.pid)
            link.close()


def _wait_for_end(pid: int) -> None:
    try:
        psutil.Process(pid).wait(20)
    except psutil.NoSuchProcess:
        pass


def _becomes_true(condition: Callable[[], object], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _owners(places: Places) -> list[int]:
    pids = []
    for process in psutil.process_iter():
        try:
            if "geminids.warm.owner.main" in process.cmdline() and process.environ().get(
                "GEMINIDS_HOME"
            ) == str(places.root):
                pids.append(process.pid)
        except psutil.Error:
            pass
    return pids


def test_an_owner_is_started_once_and_found_again(places: Places) -> None:
    """The first `reach_owner` starts an owner in its own process session; the second finds the same
    one."""
    first, second = reach_owner(places), reach_owner(places)
    assert first.pid == second.pid
    assert os.getsid(first.pid) == first.pid
    assert first.hello == Hello(
        protocol=our_hello().protocol, version=our_hello().version, uid=os.getuid(), pid=first.pid
    )
    for link in (first, second):
        link.close()


def test_only_the_user_can_open_the_owners_files(places: Places) -> None:
    """The owner's folder has mode 0700; its socket, lock and log have 0600, even with umask 0."""
    before = os.umask(0)
    try:
        reach_owner(places).close()
    finally:
        os.umask(before)
    place = OwnerPlace(places)
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (place.socket, place.lock, place.log)} == {0o600}


def test_the_owner_does_not_inherit_keys(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner does not inherit an API key of the client that started it: each order brings its
    own variables."""
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-first-client")
    link = reach_owner(places)
    assert "of-the-first-client" not in psutil.Process(link.pid).environ().values()
    link.close()


def test_clients_that_start_at_once_share_one_owner(places: Places) -> None:
    """If several clients start an owner at once, all reach the same one and no other owner is
    left."""
    pids = []

    def reach() -> None:
        link = reach_owner(places)
        pids.append(link.pid)
        link.close()

    racers = [threading.Thread(target=reach) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
    assert len(pids) == 4
    assert len(set(pids)) == 1
    assert _becomes_true(lambda: _owners(places) == pids[:1])


def test_a_stale_socket_is_replaced(places: Places) -> None:
    """If an owner was killed and left its socket, the next `reach_owner` starts a new owner."""
    link = reach_owner(places)
    psutil.Process(link.pid).kill()
    _wait_for_end(link.pid)
    link.close()
    assert OwnerPlace(places).socket.exists()
    again = reach_owner(places)
    assert again.pid != link.pid
    again.close()


def test_a_long_socket_path_works(tmp_path: Path) -> None:
    """A socket path longer than the kernel's limit of 107 bytes works."""
    place = OwnerPlace(Places(tmp_path / ("x" * 120)))
    place.check()
    with place.listen(), place.connect(1) or socket.socket() as sock:
        assert sock.getpeername() != ""


def test_an_owner_of_another_version_is_replaced(places: Places) -> None:
    """An owner of another version receives only the greeting and `leave`; then a new owner is
    started."""
    place = OwnerPlace(places)
    place.check()
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    listener = place.listen()
    listener.setblocking(True)
    received = b""

    def serve() -> None:
        nonlocal received
        sock, _ = listener.accept()
        with sock:
            sock.sendall(as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=os.getpid())))
            while not received.endswith(b'{"type":"leave"}\n'):
                received += sock.recv(4096)
            place.socket.unlink()
            listener.close()
            os.close(lock)

    old_owner = threading.Thread(target=serve)
    old_owner.start()
    link = reach_owner(places)
    old_owner.join(10)
    assert link.is_ours
    assert received == as_line(our_hello()) + b'{"type":"leave"}\n'
    link.close()


def test_an_owner_ends_on_leave(places: Places) -> None:
    """An owner without runs removes its socket and ends when a client of another version sends
    `leave`."""
    link = reach_owner(places)
    link.close()
    place = OwnerPlace(places)
    sock = place.connect(3)
    assert sock is not None
    with sock:
        sock.sendall(as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=os.getpid())))
        sock.sendall(b'{"type":"leave"}\n')
        _wait_for_end(link.pid)
    assert not place.socket.exists()


def test_a_request_of_another_version_is_refused(places: Places) -> None:
    """After a greeting of another version, the owner closes the connection on any message but
    `leave`."""
    link = reach_owner(places)
    link.close()
    sock = OwnerPlace(places).connect(3)
    assert sock is not None
    with sock:
        sock.sendall(as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=os.getpid())))
        sock.sendall(as_line(StatusRequest()))
        received = b""
        while chunk := sock.recv(4096):
            received += chunk
    assert received.count(b"\n") == 1
    assert b"hello" in received


def test_an_owner_that_does_not_greet_is_an_error(places: Places) -> None:
    """A process that listens but does not greet is an error that names `geminids warm stop`."""
    place = OwnerPlace(places)
    place.check()
    with place.listen(), pytest.raises(GeminidsError, match=r"did not answer within 0\.1 s(.|\n)*warm stop"):
        find_owner(place, timeout=0.1)
    place.socket.unlink()


def test_another_program_at_the_socket_is_an_error(places: Places) -> None:
    """If another program listens at the socket, the error says that it is not a pool's owner."""
    place = OwnerPlace(places)
    place.check()
    listener = place.listen()
    listener.setblocking(True)

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"220 mail.example\n")
            sock.recv(4096)

    other = threading.Thread(target=serve)
    other.start()
    with listener, pytest.raises(GeminidsError, match="not the geminids process for warm runs"):
        find_owner(place)
    other.join(5)
    place.socket.unlink()


def test_invalid_data_does_not_end_an_owner(places: Places) -> None:
    """The owner closes connections that send nothing or invalid data, and serves the next
    client."""
    link = reach_owner(places)
    link.close()
    place = OwnerPlace(places)
    for rubbish in (b"", b"GET / HTTP/1.1\r\n\r\n", as_line(our_hello()) + b"{}\n", b"\xff\n"):
        sock = place.connect(3)
        assert sock is not None
        with sock:
            sock.sendall(rubbish)
    again = find_owner(place)
    assert again is not None
    assert again.pid == link.pid
    again.sock.sendall(as_line(StatusRequest()))
    (status,) = decode_owner_messages(again.sock.recv(65536))
    assert isinstance(status, OwnerStatus)
    assert (status.runs, status.served, status.processes) == (0, 0, ())
    again.close()


def test_an_owner_ends_when_its_folder_is_removed(places: Places) -> None:
    """An owner ends when its folder is removed, because no client can reach it any more."""
    link = reach_owner(places)
    link.close()
    shutil.rmtree(places.root)
    _wait_for_end(link.pid)
    assert not psutil.pid_exists(link.pid)


def test_a_folder_of_another_user_is_refused(places: Places) -> None:
    """A folder that belongs to another user is refused: that user could listen there instead of our
    owner."""
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    place = OwnerPlace(places)
    place.check()
    os.chown(place.folder, NOBODY, NOBODY)
    with pytest.raises(GeminidsError, match=r"belongs to another user\n.*GEMINIDS_HOME"):
        reach_owner(places)
    os.chown(place.folder, 0, 0)


def test_a_link_in_place_of_the_folder_is_refused(places: Places, tmp_path: Path) -> None:
    """A symbolic link in place of the owner's folder is refused: it could send orders and their
    keys to another process."""
    places.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (places.root / "warm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GeminidsError, match="belongs to another user"):
        reach_owner(places)


_CONNECT_AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(5)
try:
    sock.connect(sys.argv[1])
    print("received:", sock.recv(4096))
except OSError as error:
    print("refused:", type(error).__name__)
"""


@pytest.mark.parametrize("open_to_all", [False, True])
def test_another_user_cannot_connect(places: Places, open_to_all: bool) -> None:
    """Another user cannot enter the folder.

    Through a socket that all can reach, the owner sends that user nothing.
    """
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    link = reach_owner(places)
    link.close()
    place = OwnerPlace(places)
    name = str(place.socket)
    public_folder = Path(tempfile.mkdtemp())
    try:
        if open_to_all:
            # A hard link to the socket that any user can reach.
            public_folder.chmod(0o755)
            name = str(public_folder / "s")
            os.link(place.socket, name)
            os.chmod(name, 0o666)
        done = subprocess.run(
            [sys.executable, "-I", "-c", _CONNECT_AS_NOBODY, name],
            capture_output=True,
            text=True,
            timeout=30,
            cwd="/",
        )
    finally:
        shutil.rmtree(public_folder)
    expected = (
        ("received: b''\n", "refused: ConnectionResetError\n")
        if open_to_all
        else ("refused: PermissionError\n",)
    )
    assert done.stdout in expected, done.stderr


def test_nothing_is_sent_to_an_owner_of_another_user(places: Places) -> None:
    """The client checks which user listens at the socket before it sends anything."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    place = OwnerPlace(places)
    place.check()
    path = place.folder / "theirs"
    program = (
        "import os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX); sock.bind(sys.argv[1])\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sock.listen(); print('up', flush=True); conn, _ = sock.accept(); print(conn.recv(4096))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program, str(path)], stdout=subprocess.PIPE, text=True, cwd="/"
    ) as theirs:
        assert theirs.stdout is not None
        assert theirs.stdout.readline() == "up\n"
        path.rename(place.socket)
        with pytest.raises(GeminidsError, match=rf"belongs to another user \(uid {NOBODY}\)"):
            reach_owner(places)
        assert theirs.stdout.read() == "b''\n"
    place.socket.unlink()


def test_an_owner_that_cannot_be_started_is_an_error(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the Python interpreter does not exist, starting an owner raises one clear error."""
    place = OwnerPlace(places)
    place.check()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(GeminidsError, match="could not be started: No such file"):
        start_owner(place, places)
