"""A run's private folder: private, swept by the next run when its host died, and never taken from the living."""

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
    """Another host: a process with a scratch folder of its own, which says a line when it is ready."""
    head = (
        "import os, sys, time, subprocess\nfrom pathlib import Path\n"
        "from geminids.config.paths import Places\n"
        "from geminids.launch.scratch import Scratch, name_elsewhere, sweep\n"
        f"places = Places(Path({str(places.root)!r}))\nscratch = Scratch(places)\nscratch.write('a', 'b')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + body], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


def _ready(host: subprocess.Popen[str]) -> str:
    assert host.stdout is not None
    return host.stdout.readline().strip()


def _end(host: subprocess.Popen[str]) -> None:
    host.kill()
    host.communicate()


def test_nothing_is_made_before_it_is_needed(places: Places) -> None:
    """A plain run makes no folder, and closing it makes none."""
    scratch = Scratch(places)
    assert not scratch.made
    scratch.close()
    assert sweep(places) == 0
    assert not places.root.exists()


def test_what_is_written_is_private_and_goes(places: Places) -> None:
    """Folders 0700, files 0600; after `close`, twice even, nothing is left."""
    scratch = Scratch(places)
    file = scratch.write("policy.toml", "rule")
    assert file.read_text() == "rule"
    assert _mode(file) == 0o600
    assert [_mode(folder) for folder in (file.parent, places.runs)] == [0o700, 0o700]
    scratch.close()
    scratch.close()
    assert os.listdir(places.runs) == []


def test_no_file_is_written_over(places: Places) -> None:
    """A name that is taken is an error, not another's file."""
    scratch = Scratch(places)
    scratch.write("a", b"1")
    with pytest.raises(FileExistsError):
        scratch.write("a", b"2")
    scratch.close()


def test_two_runs_of_one_host_do_not_meet(places: Places) -> None:
    """Each has its own folder, and a sweep of the same process takes neither."""
    one, two = Scratch(places), Scratch(places)
    assert one.folder != two.folder
    assert sweep(places) == 0
    one.close()
    assert two.folder.is_dir()
    two.close()


def test_a_folder_elsewhere_goes_too(places: Places, tmp_path: Path) -> None:
    """What had to be made in a place of the user's is removed with the rest, and nothing beside it."""
    (tmp_path / "mine.txt").write_text("stays")
    scratch = Scratch(places)
    folder = tmp_path / name_elsewhere(scratch.folder.name)
    scratch.make_elsewhere(folder)
    (folder / "x.png").write_bytes(b"x")
    assert _mode(folder) == 0o700
    scratch.close()
    assert not folder.exists()
    assert (tmp_path / "mine.txt").exists()


def test_a_folder_that_was_made_read_only_goes_too(places: Places) -> None:
    """An agent can take the right to write from what it is shown."""
    scratch = Scratch(places)
    inner = scratch.folder / "media"
    inner.mkdir()
    (inner / "x").touch()
    inner.chmod(0o500)
    scratch.close()
    assert os.listdir(places.runs) == []


def test_a_link_is_removed_and_not_what_it_leads_to(places: Places, tmp_path: Path) -> None:
    """Removing must not follow a link that somebody put there."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "x").touch()
    scratch = Scratch(places)
    (scratch.folder / "link").symlink_to(mine)
    scratch.close()
    assert (mine / "x").exists()
    assert os.listdir(places.runs) == []


def test_the_next_run_sweeps_what_a_killed_host_left(places: Places, tmp_path: Path) -> None:
    """SIGKILL: the folder, and the one in the user's place, are there afterwards and gone after a sweep."""
    body = (
        f"folder = Path({str(tmp_path)!r}, name_elsewhere(scratch.folder.name))\n"
        "scratch.make_elsewhere(folder)\nprint(folder, flush=True); sys.stdin.read()"
    )
    host = _host(places, body)
    elsewhere = Path(_ready(host))
    assert sweep(places) == 0, "it lives"
    assert elsewhere.is_dir()
    _end(host)
    assert elsewhere.is_dir()
    assert len(os.listdir(places.runs)) == 1
    assert sweep(places) == 1
    assert not elsewhere.exists()
    assert os.listdir(places.runs) == []


def test_a_host_that_ends_without_closing_leaves_nothing(places: Places) -> None:
    """A run that was launched and never entered has no end of its own."""
    host = _host(places, "")
    assert host.wait(30) == 0
    host.communicate()
    assert os.listdir(places.runs) == []


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_a_child_that_outlives_its_host_does_not_keep_the_folder(places: Places, how: str) -> None:
    """The lock is the host's alone: neither a fork nor a program that it started holds it."""
    bodies = {
        # The child says it itself: then it has done what a fork does first.
        "fork": "if not os.fork():\n    print(os.getpid(), flush=True); time.sleep(60)\nsys.stdin.read()",
        "exec": "print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "sys.stdin.read()",
    }
    host = _host(places, bodies[how])
    child = psutil.Process(int(_ready(host)))
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


def test_the_end_of_a_fork_takes_nothing_from_its_parent(places: Places) -> None:
    """A fork that ends as a program does, exit handlers and all, leaves the parent's folder."""
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
def test_a_folder_in_the_making_is_not_swept(places: Places, named: bool) -> None:
    """Others make folders while somebody sweeps without a pause: each has its folder, with its file in it."""
    stop = threading.Event()

    def sweeps() -> None:
        while not stop.is_set():
            sweep(places)

    sweeper = threading.Thread(target=sweeps)
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


def test_a_folder_whose_maker_died_before_its_lock_is_swept(places: Places) -> None:
    """It has no lock file yet."""
    (places.runs / "run-0123").mkdir(parents=True)
    assert sweep(places) == 1


def test_a_sweep_leaves_what_is_not_ours(places: Places, tmp_path: Path) -> None:
    """Other names stay, files stay, and a note that names a stranger's folder is not believed."""
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
