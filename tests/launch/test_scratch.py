"""Tests of `Scratch`, a run's private folder, and of `sweep`, which removes the folders of dead
hosts."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from geminids.config.paths import Places
from geminids.launch.scratch import Scratch, name_elsewhere, new_scratch_name, sweep


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _host(places: Places, body: str) -> subprocess.Popen[str]:
    """Start another host: a process with its own scratch folder, which prints a line when it is
    ready."""
    head = (
        "import os, sys, time, subprocess\nfrom pathlib import Path\n"
        "from geminids.config.paths import Places\n"
        "from geminids.launch.scratch import Scratch, name_elsewhere, sweep\n"
        f"places = Places(Path({str(places.root)!r}))\nscratch = Scratch(places)\nscratch.write('a', 'b')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + body], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


def _read_line(host: subprocess.Popen[str]) -> str:
    assert host.stdout is not None
    return host.stdout.readline().strip()


def _end(host: subprocess.Popen[str]) -> None:
    host.kill()
    host.communicate()


def test_an_unused_scratch_creates_no_folder(places: Places) -> None:
    """A `Scratch` that is not used creates no folder, also when it is closed."""
    scratch = Scratch(places)
    assert not scratch.made
    scratch.close()
    assert sweep(places) == 0
    assert not places.root.exists()


def test_files_are_private_and_removed(places: Places) -> None:
    """Folders have mode 0700 and files 0600.

    `close` removes them, and a second call has no effect.
    """
    scratch = Scratch(places)
    file = scratch.write("policy.toml", "rule")
    assert file.read_text() == "rule"
    assert _mode(file) == 0o600
    assert [_mode(folder) for folder in (file.parent, places.runs)] == [0o700, 0o700]
    scratch.close()
    scratch.close()
    assert os.listdir(places.runs) == []


def test_no_file_is_overwritten(places: Places) -> None:
    """Writing a name that exists raises `FileExistsError`."""
    scratch = Scratch(places)
    scratch.write("a", b"1")
    with pytest.raises(FileExistsError):
        scratch.write("a", b"2")
    scratch.close()


def test_two_runs_of_one_host_have_separate_folders(places: Places) -> None:
    """Two runs of a process have different folders, and a sweep of the same process removes
    neither."""
    first, second = Scratch(places), Scratch(places)
    assert first.folder != second.folder
    assert sweep(places) == 0
    first.close()
    assert second.folder.is_dir()
    second.close()


def test_a_folder_elsewhere_is_removed(places: Places, tmp_path: Path) -> None:
    """`close` also removes a folder that was created in a user's folder, and no other file
    there."""
    (tmp_path / "mine.txt").write_text("stays")
    scratch = Scratch(places)
    folder = tmp_path / name_elsewhere(scratch.folder.name)
    scratch.make_elsewhere(folder)
    (folder / "x.png").write_bytes(b"x")
    assert _mode(folder) == 0o700
    scratch.close()
    assert not folder.exists()
    assert (tmp_path / "mine.txt").exists()


def test_a_read_only_folder_is_removed(places: Places) -> None:
    """`close` also removes a folder that an agent has made read-only."""
    scratch = Scratch(places)
    inner = scratch.folder / "media"
    inner.mkdir()
    (inner / "x").touch()
    inner.chmod(0o500)
    scratch.close()
    assert os.listdir(places.runs) == []


def test_a_link_is_not_followed(places: Places, tmp_path: Path) -> None:
    """`close` removes a link and does not follow it."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "x").touch()
    scratch = Scratch(places)
    (scratch.folder / "link").symlink_to(mine)
    scratch.close()
    assert (mine / "x").exists()
    assert os.listdir(places.runs) == []


def test_a_sweep_removes_the_folders_of_a_killed_host(places: Places, tmp_path: Path) -> None:
    """A sweep removes the folders of a host that was killed, also the one in a user's folder, but
    not while the host is alive."""
    body = (
        f"folder = Path({str(tmp_path)!r}, name_elsewhere(scratch.folder.name))\n"
        "scratch.make_elsewhere(folder)\nprint(folder, flush=True); sys.stdin.read()"
    )
    host = _host(places, body)
    elsewhere = Path(_read_line(host))
    assert sweep(places) == 0, "the host is alive"
    assert elsewhere.is_dir()
    _end(host)
    assert elsewhere.is_dir()
    assert len(os.listdir(places.runs)) == 1
    assert sweep(places) == 1
    assert not elsewhere.exists()
    assert os.listdir(places.runs) == []


def test_a_host_that_exits_without_closing_leaves_no_folder(places: Places) -> None:
    """A host that exits without `close` leaves no folder."""
    host = _host(places, "")
    assert host.wait(30) == 0
    host.communicate()
    assert os.listdir(places.runs) == []


@pytest.mark.parametrize("method", ["fork", "exec"])
def test_a_child_of_a_dead_host_does_not_keep_the_folder(places: Places, method: str) -> None:
    """Only the host holds the lock of its folder: neither a fork nor a program that it started
    prevents a sweep."""
    bodies = {
        # The child prints the line, so that its at-fork functions have already run.
        "fork": "if not os.fork():\n    print(os.getpid(), flush=True); time.sleep(60)\nsys.stdin.read()",
        "exec": "print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "sys.stdin.read()",
    }
    host = _host(places, bodies[method])
    child = psutil.Process(int(_read_line(host)))
    try:
        host.kill()
        host.wait()
        assert child.is_running()
        assert sweep(places) == 1
        assert os.listdir(places.runs) == []
    finally:
        child.kill()
        child.wait(10)
        host.communicate()


def test_a_fork_does_not_remove_its_parents_folder(places: Places) -> None:
    """`close` in a forked child does not remove the parent's folder."""
    scratch = Scratch(places)
    file = scratch.write("a", "b")
    child = os.fork()
    if not child:
        scratch.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert file.exists()
    assert sweep(places) == 0
    scratch.close()


@pytest.mark.parametrize("named", [False, True])
def test_a_new_folder_is_not_swept(places: Places, named: bool) -> None:
    """A sweep that runs all the time removes no folder that is just being created."""
    stop = threading.Event()

    def sweep_until_stopped() -> None:
        while not stop.is_set():
            sweep(places)

    sweeper = threading.Thread(target=sweep_until_stopped)
    sweeper.start()
    try:
        for number in range(300):
            scratch = Scratch(places, new_scratch_name() if named else None)
            file = scratch.write("a", str(number))
            assert file.read_text() == str(number)
            scratch.close()
    finally:
        stop.set()
        sweeper.join()
    sweep(places)
    assert os.listdir(places.runs) == []


def test_a_folder_without_a_lock_is_swept(places: Places) -> None:
    """A sweep removes a folder without a lock file, whose host died before it created the lock."""
    (places.runs / "run-0123").mkdir(parents=True)
    assert sweep(places) == 1


def test_a_sweep_leaves_other_files(places: Places, tmp_path: Path) -> None:
    """A sweep leaves other names and plain files, and ignores a record that names a folder that is
    not ours."""
    (places.runs / "notes").mkdir(parents=True)
    (places.runs / "run-file").write_text("x")
    mine = tmp_path / "mine"
    mine.mkdir()
    dead = places.runs / "run-0123"
    dead.mkdir()
    (dead / "elsewhere").write_bytes(os.fsencode(mine) + b"\0")
    assert sweep(places) == 1
    assert mine.is_dir()
    assert sorted(os.listdir(places.runs)) == ["notes", "run-file"]
