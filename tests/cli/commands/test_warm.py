"""`geminids warm` and `geminids run --warm` as commands: their output and what they import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from geminids.config.paths import Places
from geminids.warm.owner.place import OwnerPlace
from geminids.warm.owner.protocol import Hello, as_line
from geminids.warm.owner.reach import reach_owner


def _geminids(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geminids", *words], capture_output=True, text=True, timeout=60, input=""
    )


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Folders for this test only. Afterwards the owner process that the test started is stopped."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    yield Places(tmp_path / "geminids")
    assert _geminids("warm", "stop").returncode == 0


def test_no_warm_process_is_no_error(places: Places) -> None:
    """Without a warm process, `status` and `stop` say so, exit with 0 and create no folder."""
    for words in (("status",), ("stop",)):
        done = _geminids("warm", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("No warm process is running.")
    assert _geminids("warm", "status", "--json").stdout == "null\n"
    assert not places.root.exists()


def test_status_and_stop_describe_the_owner(places: Places) -> None:
    """`status` shows pid, version and end time of the owner process, also as JSON.

    `stop` reports that it ended.
    """
    link = reach_owner(places)
    link.close()
    shown = _geminids("warm", "status").stdout
    assert shown.startswith(f"Process {link.pid} of geminids {link.hello.version}, started at ")
    assert "The process ends in " in shown
    status = msgspec.json.decode(_geminids("warm", "status", "--json").stdout)
    assert (status["pid"], status["runs"], status["served"], status["processes"]) == (link.pid, 0, 0, [])
    assert 0 < status["ends_in"] <= 300
    assert _geminids("warm", "stop").stdout == f"Ended process {link.pid}.\n"
    assert _geminids("warm", "stop").stdout.startswith("No warm process is running.")


_OTHER_OWNER = """
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


def test_an_owner_of_another_version_is_reported_and_can_be_ended(places: Places) -> None:
    """`status` reports an owner process of another version, and `stop` ends it."""
    place = OwnerPlace(places)
    place.check()
    hello = as_line(Hello(protocol=99, version="99.0.0", uid=os.getuid(), pid=1)).decode()
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER_OWNER, str(place.socket), hello], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        done = _geminids("warm", "status")
        assert done.returncode == 1
        assert f"(pid {other.pid}) was started by another version of geminids (99.0.0)" in done.stderr
        assert "Traceback" not in done.stderr
        assert _geminids("warm", "stop").stdout == f"Ended process {other.pid} of geminids 99.0.0.\n"


def test_a_folder_of_another_user_is_one_clear_error(places: Places) -> None:
    """If the folder belongs to another user, `status` prints one error with a solution."""
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    place = OwnerPlace(places)
    place.check()
    os.chown(place.folder, 65534, 65534)
    done = _geminids("warm", "status")
    os.chown(place.folder, 0, 0)
    assert done.returncode == 1
    assert done.stderr == (
        f"geminids: {place.folder} belongs to another user\n  Set GEMINIDS_HOME to a folder of your own.\n"
    )


@pytest.mark.parametrize("words", [("--warm-for", "-1"), ("--warm-for", "soon")])
def test_a_bad_time_is_bad_usage(words: tuple[str, ...]) -> None:
    """An invalid `--warm-for` exits with 2."""
    done = _geminids("run", "--warm", *words, "hello")
    assert done.returncode == 2
    assert "--warm-for" in done.stderr


def test_a_client_imports_nothing_heavy_at_the_start() -> None:
    """The commands import no event loop, psutil or rich at the start.

    The owner works while they are imported later.
    """
    program = """
import sys, geminids.cli.commands.run, geminids.warm.owner.run
print([name for name in ("anyio", "asyncio", "psutil", "rich", "h11", "trio", "tomlkit") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
