"""The pool's owner is found, started, replaced and kept from others; no CLI is needed for that."""

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
from geminids.warm.owner.owner_place import OwnerPlace
from geminids.warm.owner.owner_reach import find_owner, our_hello, reach_owner, start_owner
from geminids.warm.owner.owner_wire import End, Hello, Look, OwnerStatus, as_line, told_in

NOBODY = 65534


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Places of the test's own; the owner that it leaves is ended."""
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


def _soon(holds: Callable[[], object], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _owners(places: Places) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if "geminids.warm.owner.owner_main" in process.cmdline() and process.environ().get(
                "GEMINIDS_HOME"
            ) == str(places.root):
                found.append(process.pid)
        except psutil.Error:
            pass
    return found


def test_an_owner_is_started_once_and_found_again(places: Places) -> None:
    """The first reach starts one, the next ones find it; it has a name and a session of its own."""
    first, second = reach_owner(places), reach_owner(places)
    assert first.pid == second.pid
    assert os.getsid(first.pid) == first.pid
    assert first.hello == Hello(
        protocol=our_hello().protocol, version=our_hello().version, uid=os.getuid(), pid=first.pid
    )
    for link in (first, second):
        link.close()


def test_only_its_user_can_come_near(places: Places) -> None:
    """The folder is 0700, socket, lock and log 0600, whatever the umask."""
    before = os.umask(0)
    try:
        reach_owner(places).close()
    finally:
        os.umask(before)
    place = OwnerPlace(places)
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (place.socket, place.lock, place.log)} == {0o600}


def test_the_owner_has_nothing_of_the_environment_that_is_not_its_own(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs need comes with their orders: the owner keeps no key of whoever started it."""
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-first-client")
    link = reach_owner(places)
    assert "of-the-first-client" not in psutil.Process(link.pid).environ().values()
    link.close()


def test_those_who_race_share_one_owner(places: Places) -> None:
    """Many start one at once: all reach the same, and one is left."""
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
    assert _soon(lambda: _owners(places) == pids[:1])


def test_a_stale_socket_is_replaced_in_silence(places: Places) -> None:
    """An owner that was killed leaves its socket: the next reach starts another."""
    link = reach_owner(places)
    psutil.Process(link.pid).kill()
    _wait_for_end(link.pid)
    link.close()
    assert OwnerPlace(places).socket.exists()
    again = reach_owner(places)
    assert again.pid != link.pid
    again.close()


def test_a_path_that_is_too_long_for_a_socket_works_too(tmp_path: Path) -> None:
    """The kernel has room for 107 bytes; a home may lie deeper."""
    place = OwnerPlace(Places(tmp_path / ("x" * 120)))
    place.check()
    with place.listen(), place.connect(1) or socket.socket() as found:
        assert found.getpeername() != ""


def test_another_version_is_told_to_make_way(places: Places) -> None:
    """Older or newer: it is told to leave, a fresh one takes its place, and nothing else is said to it."""
    place = OwnerPlace(places)
    place.check()
    lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    listener = place.listen()
    listener.setblocking(True)
    heard = b""

    def serve() -> None:
        nonlocal heard
        sock, _ = listener.accept()
        with sock:
            sock.sendall(as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=os.getpid())))
            while not heard.endswith(b'{"type":"leave"}\n'):
                heard += sock.recv(4096)
            place.socket.unlink()
            listener.close()
            os.close(lock)

    old = threading.Thread(target=serve)
    old.start()
    link = reach_owner(places)
    old.join(10)
    assert link.is_ours
    assert heard == as_line(our_hello()) + b'{"type":"leave"}\n'
    link.close()


def test_an_owner_makes_way_when_it_is_told_to(places: Places) -> None:
    """One that has no runs ends at once, and gives up its place before."""
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


def test_an_order_of_another_version_is_not_taken(places: Places) -> None:
    """Whatever it says after its greeting, but for `leave`, the connection is closed."""
    link = reach_owner(places)
    link.close()
    sock = OwnerPlace(places).connect(3)
    assert sock is not None
    with sock:
        sock.sendall(as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=os.getpid())))
        sock.sendall(as_line(Look()))
        told = b""
        while chunk := sock.recv(4096):
            told += chunk
    assert told.count(b"\n") == 1
    assert b"hello" in told


def test_one_that_does_not_greet_is_not_waited_for(places: Places) -> None:
    """A process that hangs is told of, with what to do."""
    place = OwnerPlace(places)
    place.check()
    with place.listen(), pytest.raises(GeminidsError, match=r"does not answer within 0\.1 s(.|\n)*warm stop"):
        find_owner(place, timeout=0.1)
    place.socket.unlink()


def test_what_is_no_owner_is_told_of(places: Places) -> None:
    """Something else listens there."""
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
    with listener, pytest.raises(GeminidsError, match="is no pool's owner"):
        find_owner(place)
    other.join(5)
    place.socket.unlink()


def test_rubbish_does_not_end_an_owner(places: Places) -> None:
    """Whoever says nothing, or something else, is hung up on; the next is served."""
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
    again.sock.sendall(as_line(Look()))
    (status,) = told_in(again.sock.recv(65536))
    assert isinstance(status, OwnerStatus)
    assert (status.runs, status.served, status.processes) == (0, 0, ())
    again.close()


def test_an_owner_that_nobody_can_reach_any_more_ends(places: Places) -> None:
    """Its folder was removed: it goes, and is not looked for."""
    link = reach_owner(places)
    link.close()
    shutil.rmtree(places.root)
    _wait_for_end(link.pid)
    assert not psutil.pid_exists(link.pid)


def test_a_folder_of_another_user_is_not_used(places: Places) -> None:
    """Whoever owns the folder could listen there in our owner's place."""
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    place = OwnerPlace(places)
    place.check()
    os.chown(place.folder, NOBODY, NOBODY)
    with pytest.raises(GeminidsError, match=r"belongs to another user\n.*GEMINIDS_HOME"):
        reach_owner(places)
    os.chown(place.folder, 0, 0)


def test_a_link_in_place_of_the_folder_is_not_followed(places: Places, tmp_path: Path) -> None:
    """It would lead the order, and the keys in it, elsewhere."""
    places.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (places.root / "warm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GeminidsError, match="belongs to another user"):
        reach_owner(places)


_TRY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(5)
try:
    sock.connect(sys.argv[1])
    print("told:", sock.recv(4096))
except OSError as error:
    print("refused:", type(error).__name__)
"""


@pytest.mark.parametrize("open_to_all", [False, True])
def test_another_user_cannot_connect(places: Places, open_to_all: bool) -> None:
    """The folder keeps them out; and were it open, the owner hangs up on them without a word."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    link = reach_owner(places)
    link.close()
    place = OwnerPlace(places)
    name = str(place.socket)
    way = Path(tempfile.mkdtemp())
    try:
        if open_to_all:
            # A second name for the socket, which any user can reach.
            way.chmod(0o755)
            name = str(way / "s")
            os.link(place.socket, name)
            os.chmod(name, 0o666)
        done = subprocess.run(
            [sys.executable, "-I", "-c", _TRY, name], capture_output=True, text=True, timeout=30, cwd="/"
        )
    finally:
        shutil.rmtree(way)
    expected = (
        ("told: b''\n", "refused: ConnectionResetError\n") if open_to_all else ("refused: PermissionError\n",)
    )
    assert done.stdout in expected, done.stderr


def test_an_owner_of_another_user_is_not_spoken_to(places: Places) -> None:
    """Who listens is looked at before anything is said."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    place = OwnerPlace(places)
    place.check()
    made = place.folder / "theirs"
    program = (
        "import os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX); sock.bind(sys.argv[1])\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sock.listen(); print('up', flush=True); conn, _ = sock.accept(); print(conn.recv(4096))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program, str(made)], stdout=subprocess.PIPE, text=True, cwd="/"
    ) as theirs:
        assert theirs.stdout is not None
        assert theirs.stdout.readline() == "up\n"
        made.rename(place.socket)
        with pytest.raises(GeminidsError, match=rf"a process of another user \({NOBODY}\)"):
            reach_owner(places)
        assert theirs.stdout.read() == "b''\n"
    place.socket.unlink()


def test_one_that_cannot_be_started_is_told_of(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is gone is one clear error."""
    place = OwnerPlace(places)
    place.check()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(GeminidsError, match="could not be started: No such file"):
        start_owner(place, places)
