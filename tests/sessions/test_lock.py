"""Only one run can hold a session at a time, across tasks, threads and processes."""

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


def _take_lock(places: Places, run_id: str = "run-1") -> Lock:
    lock = try_hold(ID, run_id, places=places)
    assert isinstance(lock, Lock)
    return lock


def test_the_second_caller_gets_the_holder(places: Places) -> None:
    """The second caller gets the holder (pid, run and time) instead of the lock.

    After a release, which may be repeated, the session is free.
    """
    with _take_lock(places) as lock:
        assert lock.held
        assert lock.left_by is None
        holder = try_hold(ID, "run-2", places=places)
        assert isinstance(holder, Holder)
        assert (holder.pid, holder.run_id) == (os.getpid(), "run-1")
        assert f"run-1 of process {os.getpid()} since " in str(holder)
        other = try_hold("another", "run-2", places=places)
        assert isinstance(other, Lock)
        other.release()
    lock.release()
    assert not lock.held
    _take_lock(places).release()


def test_lock_files_are_private_and_removed(places: Places) -> None:
    """The lock folder has mode 0700, the file 0600, and the file is removed with the lock."""
    lock = _take_lock(places)
    (file,) = places.locks.iterdir()
    assert stat.S_IMODE(places.locks.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lock.release()
    assert list(places.locks.iterdir()) == []


@pytest.mark.parametrize("bad", ["../x", "a/b", "a\0b", "", "x" * 10_000, "-rf"])
def test_a_name_that_is_no_session_id_is_refused(places: Places, bad: str) -> None:
    """A text that is not a session id is refused, and no folder is created."""
    with pytest.raises(SessionError, match="letters, digits"):
        try_hold(bad, "run-1", places=places)
    assert not places.root.exists()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    """If the lock folder cannot be created, the error names GEMINIDS_HOME."""
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="cannot lock") as caught:
        try_hold(ID, "run-1", places=Places(tmp_path / "file"))
    assert "GEMINIDS_HOME" in str(caught.value)


def test_a_link_as_lock_file_is_not_followed(places: Places, tmp_path: Path) -> None:
    """If the lock file is a link, locking fails and the target of the link is not changed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    places.locks.mkdir(parents=True)
    (places.locks / f"gemini-{ID}").symlink_to(victim)
    with pytest.raises(SessionError, match="cannot lock"):
        try_hold(ID, "run-1", places=places)
    assert victim.read_text() == "mine"


@pytest.mark.anyio
async def test_a_held_session_is_busy_without_waiting(places: Places) -> None:
    """With `wait=False`, a held session raises SessionBusy with the holder.

    A free one is locked, and its file is removed afterwards.
    """
    with _take_lock(places):
        with pytest.raises(SessionBusy) as caught:
            async with hold(ID, "run-2", wait=False, places=places):
                raise AssertionError("entered")
        assert caught.value.holder.run_id == "run-1"
    async with hold(ID, "run-2", wait=False, places=places) as lock:
        assert lock.held
    assert list(places.locks.iterdir()) == []


@pytest.mark.anyio
async def test_a_waiter_reports_the_holder_and_gets_the_lock(places: Places) -> None:
    """A waiting caller calls `on_wait` once per holder and then gets the lock."""
    lock = _take_lock(places)
    holders: list[Holder] = []

    def on_wait(holder: Holder) -> None:
        holders.append(holder)

    async def waiter() -> None:
        async with hold(ID, "run-2", on_wait=on_wait, places=places) as mine:
            assert mine.held

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            while not holders:
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            lock.release()
    assert [holder.run_id for holder in holders] == ["run-1"]


@pytest.mark.anyio
async def test_a_cancelled_waiter_leaves_nothing(places: Places) -> None:
    """A cancelled waiter leaves no file descriptor and no lock."""
    lock = _take_lock(places)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    with anyio.move_on_after(0.15) as scope:
        async with hold(ID, "run-2", places=places):
            raise AssertionError("entered")
    assert scope.cancelled_caught
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)
    lock.release()
    _take_lock(places, "run-3").release()


def test_threads_do_not_share_a_lock(places: Places) -> None:
    """Only one thread of a process can hold a session at a time."""
    inside: list[int] = []
    holders: list[int] = []

    def work() -> None:
        for _ in range(20):
            while not isinstance(lock := try_hold(ID, "run", places=places), Lock):
                pass
            inside.append(1)
            holders.append(len(inside))
            inside.pop()
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(holders) == 80
    assert set(holders) == {1}


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
    """Fifty tasks in four processes increment a counter file under the lock and lose no step."""
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
    os.write(1, b"forked\\n")  # one write: with PYTHONUNBUFFERED the output of two `print` calls can mix
    time.sleep(300)
if sys.argv[3] == "exec":
    import subprocess
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], close_fds=False)
os.write(1, b"held\\n")
time.sleep(300)
"""


@pytest.mark.parametrize("child", ["none", "fork", "exec"])
def test_a_killed_holder_frees_the_session(places: Places, child: str) -> None:
    """When the holder is killed, its session is free at once, even if its children live.

    The next holder learns who died.
    """
    argv = [sys.executable, "-c", _HOLDER, str(places.root), ID, child]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert holder.stdout is not None
    try:
        lines = [holder.stdout.readline()]
        while not lines[-1].startswith("held"):
            lines.append(holder.stdout.readline())
        if child == "fork" and len(lines) == 1:
            lines.append(holder.stdout.readline())
        reported_holder = try_hold(ID, "run-2", places=places)
        assert isinstance(reported_holder, Holder)
        assert reported_holder.pid == holder.pid
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(30)
        lock = try_hold(ID, "run-2", places=places)
        assert isinstance(lock, Lock)
        assert lock.left_by == reported_holder
        lock.release()
        assert list(places.locks.iterdir()) == []
    finally:
        try:
            os.killpg(holder.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        holder.wait(30)
        holder.stdout.close()
        deadline = time.monotonic() + 30
        while marked(os.environ[MARKER]) and time.monotonic() < deadline:
            time.sleep(0.01)


def test_lock_files_of_dead_holders_are_removed(places: Places) -> None:
    """A release also removes lock files of dead holders, but not those of living ones."""
    lock = _take_lock(places)
    other = try_hold("another", "run-2", places=places)
    assert isinstance(other, Lock)
    (places.locks / "gemini-dead").write_text('{"pid":1,"run_id":"run-x","since":1}\n')
    other.release()
    assert [file.name for file in places.locks.iterdir()] == [f"gemini-{ID}"]
    lock.release()
    assert list(places.locks.iterdir()) == []


def test_an_unreadable_lock_file(places: Places) -> None:
    """If the text of a lock file is unreadable, the holder is unknown, but the lock still works."""
    with _take_lock(places):
        (places.locks / f"gemini-{ID}").write_bytes(b"\xff" * 100)
        assert try_hold(ID, "run-2", places=places) == Holder()
        assert str(Holder()) == "another process"
    (places.locks / f"gemini-{ID}").write_bytes(b"\xff" * 100)
    _take_lock(places).release()


def test_still_writing_sees_only_processes_of_the_run() -> None:
    """`still_writing` finds only the processes with the mark of that run."""
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
