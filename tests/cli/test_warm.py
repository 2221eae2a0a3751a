"""`geminids warm` and `geminids run --warm` as commands: what they say, and that they stay quick."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from geminids.config.paths import Places
from geminids.warm.owner.owner_place import OwnerPlace
from geminids.warm.owner.owner_reach import reach_owner
from geminids.warm.owner.owner_wire import Hello, as_line


def _geminids(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geminids", *words], capture_output=True, text=True, timeout=60, input=""
    )


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Places of the test's own; the owner that it leaves is ended."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    yield Places(tmp_path / "geminids")
    assert _geminids("warm", "stop").returncode == 0


def test_nothing_there_is_no_error_and_leaves_nothing(places: Places) -> None:
    """Status and stop say so, exit 0, and make no folder for the question."""
    for words in (("status",), ("stop",)):
        done = _geminids("warm", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("No warm process is running.")
    assert _geminids("warm", "status", "--json").stdout == "null\n"
    assert not places.root.exists()


def test_status_and_stop_tell_of_the_owner(places: Places) -> None:
    """Its pid, its version, when it will end; as JSON too; and that it was ended."""
    link = reach_owner(places)
    link.close()
    shown = _geminids("warm", "status").stdout
    assert shown.startswith(f"Process {link.pid} of geminids {link.hello.version}, since ")
    assert "It ends in " in shown
    told = msgspec.json.decode(_geminids("warm", "status", "--json").stdout)
    assert (told["pid"], told["runs"], told["served"], told["processes"]) == (link.pid, 0, 0, [])
    assert 0 < told["ends_in"] <= 300
    assert _geminids("warm", "stop").stdout == f"Ended process {link.pid}.\n"
    assert _geminids("warm", "stop").stdout.startswith("No warm process is running.")


_OTHER = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.bind(sys.argv[1])
sock.listen()
print("up", flush=True)
while True:
    conn, _ = sock.accept()
    conn.sendall(sys.argv[2].encode())
    conn.recv(4096)
"""


def test_one_of_another_version_is_told_of_and_can_be_ended(places: Places) -> None:
    """`status` says which, and what becomes of it; `stop` ends it."""
    place = OwnerPlace(places)
    place.check()
    hello = as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=1)).decode()
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(place.socket), hello], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        done = _geminids("warm", "status")
        assert done.returncode == 1
        assert f"another version: process {other.pid} of geminids 99.0.0" in done.stderr
        assert "Traceback" not in done.stderr
        assert _geminids("warm", "stop").stdout == f"Ended process {other.pid} of geminids 99.0.0.\n"


def test_a_folder_of_another_user_is_one_clear_error(places: Places) -> None:
    """No traceback, and what to do."""
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    place = OwnerPlace(places)
    place.check()
    os.chown(place.folder, 65534, 65534)
    done = _geminids("warm", "status")
    os.chown(place.folder, 0, 0)
    assert done.returncode == 1
    assert done.stderr == (
        f"geminids: {place.folder} belongs to another user\n  Name a folder of your own with GEMINIDS_HOME.\n"
    )


@pytest.mark.parametrize("words", [("--warm-for", "-1"), ("--warm-for", "soon")])
def test_a_bad_time_is_bad_usage(words: tuple[str, ...]) -> None:
    """Exit code 2, before anything is started."""
    done = _geminids("run", "--warm", *words, "hello")
    assert done.returncode == 2
    assert "--warm-for" in done.stderr


def test_a_client_loads_nothing_heavy_before_its_order_is_sent() -> None:
    """Neither an event loop, nor psutil, nor rich: the owner works while they are imported."""
    program = """
import sys, geminids.cli.commands.run, geminids.warm.owner.owner_run
print([name for name in ("anyio", "asyncio", "psutil", "rich", "h11", "trio", "tomlkit") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
