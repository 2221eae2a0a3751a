"""A session is held by one run at a time, across tasks, threads and processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

from geminids.config.paths import Places
from geminids.errors import SessionBusy, SessionError
from geminids.process.marker import MARKER, new_mark, with_mark
from geminids.process.tree import marked
from geminids.sessions.lock import Holder, Lock, hold, still_writing, try_hold

ID = "3e0923c9-7033-438d-a978-a361d8031f47"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


def _taken(places: Places, run_id: str = "run-1") -> Lock:
    got = try_hold(ID, run_id, places=places)
    assert isinstance(got, Lock)
    return got


def test_who_comes_second_learns_who_holds_it(places: Places) -> None:
    """The lock, or the holder: pid, run and since; free again after release, which may come twice."""
    with _taken(places) as lock:
        assert lock.held
        assert lock.left_by is None
        holder = try_hold(ID, "run-2", places=places)
        assert isinstance(holder, Holder)
        assert (holder.pid, holder.run_id) == (os.getpid(), "run-1")
        assert f"run run-1 of process {os.getpid()} since " in str(holder)
        other = try_hold("another", "run-2", places=places)
        assert isinstance(other, Lock)
        other.release()
    lock.release()
    assert not lock.held
    _taken(places).release()


def test_only_the_owner_can_look_and_nothing_is_left(places: Places) -> None:
    """The folder is 0700, the file 0600, and it goes with the lock."""
    lock = _taken(places)
    (file,) = places.locks.iterdir()
    assert stat.S_IMODE(places.locks.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lock.release()
    assert list(places.locks.iterdir()) == []


@pytest.mark.parametrize("bad", ["../x", "a/b", "a\0b", "", "x" * 10_000, "-rf"])
def test_a_name_that_is_no_session_id_is_refused(places: Places, bad: str) -> None:
    """And nothing is made for it."""
    with pytest.raises(SessionError, match="letters, digits"):
        try_hold(bad, "run-1", places=places)
    assert not places.root.exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """One clear error with what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="cannot lock") as caught:
        try_hold(ID, "run-1", places=Places(tmp_path / "file"))
    assert "GEMINIDS_HOME" in str(caught.value)


def test_a_link_in_the_place_of_the_file_is_not_followed(places: Places, tmp_path: Path) -> None:
    """Nobody's file is written through it."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    places.locks.mkdir(parents=True)
    (places.locks / f"gemini-{ID}").symlink_to(victim)
    with pytest.raises(SessionError, match="cannot lock"):
        try_hold(ID, "run-1", places=places)
    assert victim.read_text() == "mine"


@pytest.mark.anyio
async def test_without_waiting_it_is_busy(places: Places) -> None:
    """SessionBusy has the holder; nothing was taken by asking."""
    with _taken(places):
        with pytest.raises(SessionBusy) as caught:
            async with hold(ID, "run-2", wait=False, places=places):
                raise AssertionError("entered")
        assert caught.value.holder.run_id == "run-1"
    async with hold(ID, "run-2", wait=False, places=places) as lock:
        assert lock.held
    assert list(places.locks.iterdir()) == []


@pytest.mark.anyio
async def test_a_waiter_says_for_whom_and_gets_it(places: Places) -> None:
    """`on_wait` is called once a holder."""
    lock = _taken(places)
    told: list[Holder] = []

    def on_wait(holder: Holder) -> None:
        told.append(holder)

    async def waiter() -> None:
        async with hold(ID, "run-2", on_wait=on_wait, places=places) as mine:
            assert mine.held

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            while not told:
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            lock.release()
    assert [holder.run_id for holder in told] == ["run-1"]


@pytest.mark.anyio
async def test_a_cancelled_waiter_leaves_nothing(places: Places) -> None:
    """Neither a descriptor nor a lock: the next one has it at once."""
    lock = _taken(places)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    with anyio.move_on_after(0.15) as scope:
        async with hold(ID, "run-2", places=places):
            raise AssertionError("entered")
    assert scope.cancelled_caught
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)
    lock.release()
    _taken(places, "run-3").release()


def test_threads_of_one_process_do_not_share_it(places: Places) -> None:
    """The lock belongs to who took it, not to the process."""
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            while not isinstance(got := try_hold(ID, "run", places=places), Lock):
                pass
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            got.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 80
    assert set(most) == {1}


_WORKER = """
import sys, anyio
from pathlib import Path
from geminids.config.paths import Places
from geminids.sessions.lock import hold
root = Path(sys.argv[1])
count = root / "count"
async def one(n):
    async with hold(sys.argv[2], f"run-{n}", places=Places(root)):
        # Read, let the others run, write: any overlap loses a step.
        number = int(count.read_text())
        await anyio.sleep(0.001)
        count.write_text(str(number + 1))
async def main():
    async with anyio.create_task_group() as tasks:
        for n in range(int(sys.argv[3])):
            tasks.start_soon(one, n)
anyio.run(main)
"""


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.deep)])
def test_fifty_tasks_in_four_processes_never_overlap(places: Places, rounds: int) -> None:
    """A counter that is read and written without any other care comes out right; no file is left."""
    places.root.mkdir()
    (places.root / "count").write_text("0")
    for _ in range(rounds):
        shares = (12, 12, 13, 13)
        started = [
            subprocess.Popen([sys.executable, "-c", _WORKER, str(places.root), ID, str(share)])
            for share in shares
        ]
        assert [process.wait(120) for process in started] == [0, 0, 0, 0]
    assert (places.root / "count").read_text() == str(50 * rounds)
    assert list(places.locks.iterdir()) == []


_HOLDER = """
import os, sys, time
from pathlib import Path
from geminids.config.paths import Places
from geminids.sessions.lock import try_hold
lock = try_hold(sys.argv[2], "run-dead", places=Places(Path(sys.argv[1])))
if sys.argv[3] == "fork" and os.fork() == 0:
    os.write(1, b"forked\\n")  # one write: with PYTHONUNBUFFERED the words of two `print` calls can mix
    time.sleep(300)
if sys.argv[3] == "exec":
    import subprocess
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], close_fds=False)
os.write(1, b"held\\n")
time.sleep(300)
"""


@pytest.mark.parametrize("child", ["none", "fork", "exec"])
def test_a_killed_holder_frees_it_at_once(places: Places, child: str) -> None:
    """The kernel does it, whatever children live on; the next holder learns who died; no file is left."""
    argv = [sys.executable, "-c", _HOLDER, str(places.root), ID, child]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert holder.stdout is not None
    try:
        lines = [holder.stdout.readline()]
        while not lines[-1].startswith("held"):
            lines.append(holder.stdout.readline())
        if child == "fork" and len(lines) == 1:
            lines.append(holder.stdout.readline())
        held = try_hold(ID, "run-2", places=places)
        assert isinstance(held, Holder)
        assert held.pid == holder.pid
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(30)
        got = try_hold(ID, "run-2", places=places)
        assert isinstance(got, Lock)
        assert got.left_by == held
        got.release()
        assert list(places.locks.iterdir()) == []
    finally:
        try:
            os.killpg(holder.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        holder.wait(30)
        holder.stdout.close()
        until = time.monotonic() + 30
        while marked(os.environ[MARKER]) and time.monotonic() < until:
            time.sleep(0.01)


def test_the_files_of_the_dead_are_swept_and_those_of_the_living_are_not(places: Places) -> None:
    """Whoever releases a session removes them."""
    lock = _taken(places)
    other = try_hold("another", "run-2", places=places)
    assert isinstance(other, Lock)
    (places.locks / "gemini-dead").write_text('{"pid":1,"run_id":"run-x","since":1}\n')
    other.release()
    assert [file.name for file in places.locks.iterdir()] == [f"gemini-{ID}"]
    lock.release()
    assert list(places.locks.iterdir()) == []


def test_a_record_that_cannot_be_read_is_no_trouble(places: Places) -> None:
    """The lock is what counts: the holder is then unknown."""
    with _taken(places):
        (places.locks / f"gemini-{ID}").write_bytes(b"\xff" * 100)
        assert try_hold(ID, "run-2", places=places) == Holder()
        assert str(Holder()) == "another process"
    (places.locks / f"gemini-{ID}").write_bytes(b"\xff" * 100)
    _taken(places).release()


def test_still_writing_sees_processes_of_the_run_alone() -> None:
    """By their mark."""
    program = "import time; print(flush=True); time.sleep(300)"
    env = with_mark(os.environ, new_mark("run-of-the-dead"))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        assert still_writing(Holder(1, "run-of-the-dead", 0.0))
        assert not still_writing(Holder(1, "run-of-another", 0.0))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
