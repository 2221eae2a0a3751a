"""Processes of dead hosts, with real hosts that really died."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from geminids.config.paths import Places
from geminids.process.marker import MARKER, Mark, new_mark, with_mark
from geminids.process.orphans import Orphan, Survey, end_orphans, find_orphans, forget_kept
from geminids.process.tree import marked

# Spawns what it is told to, without a guard, and dies.
HOST = """
import os, sys
from geminids.process.child import spawn
from geminids.process.marker import new_mark, with_mark
mark = new_mark(sys.argv[1])
child = spawn(sys.argv[2:], cwd="/", env=with_mark(os.environ, mark))
print(child.pid, mark, flush=True)
os._exit(0)
"""
SLEEP = ("sleep", "300")
STUBBORN = ("sh", "-c", 'trap "" TERM; : > "$READY"; while :; do sleep 0.1; done')

Abandon = Callable[..., psutil.Process]


@pytest.fixture
def abandon(places: Places) -> Iterator[Abandon]:
    """Have a host start a program and die; what it left is ended after the test, by its mark."""
    marks: list[str] = []

    def abandon(*argv: str, run_id: str = "run-x", env: dict[str, str] | None = None) -> psutil.Process:
        outside = {name: value for name, value in os.environ.items() if name != MARKER}
        outside["GEMINIDS_HOME"] = str(places.root)
        command = [sys.executable, "-c", HOST, run_id, *argv]
        said = subprocess.run(command, env={**outside, **(env or {})}, stdout=subprocess.PIPE, check=True)
        pid, mark = said.stdout.decode().split()
        marks.append(mark)
        return psutil.Process(int(pid))

    yield abandon
    for mark in marks:
        for process in marked(mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        until(functools.partial(none_left, mark))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def dead_mark(run_id: str = "run-dead") -> Mark:
    """The mark of a host that is no more."""
    host = subprocess.Popen(["true"])
    host.wait()
    return Mark(host.pid, int(time.time() * 1000), "0123456789ab", run_id)


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def gone(process: psutil.Process) -> bool:
    """Ended, whether or not init has collected it yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def none_left(mark: str) -> bool:
    return not marked(mark)


def pids(ones: tuple[Orphan, ...]) -> set[int]:
    return {one.pid for one in ones}


def everyone(seen: Survey) -> set[int]:
    return pids(seen.orphans + seen.kept + seen.sheltered + seen.elsewhere)


def the(process: psutil.Process, ones: tuple[Orphan, ...]) -> Orphan:
    return next(one for one in ones if one.pid == process.pid)


def test_found(abandon: Abandon, places: Places) -> None:
    """A marked process whose host has died is an orphan, known by pid, start, mark, words and age."""
    process = abandon(*SLEEP, run_id="run-of-mine")
    one = the(process, find_orphans(places).orphans)
    assert one.mark.run_id == "run-of-mine"
    assert not one.mark.host_is_alive()
    assert one.started_at == pytest.approx(process.create_time(), abs=1)
    assert one.command == "sleep 300"
    assert 0 <= one.age < 60


def test_live_host(places: Places) -> None:
    """A process whose host lives is nobody's orphan, also where an outer host is dead."""
    env = with_mark(with_mark({"PATH": os.environ["PATH"]}, dead_mark()), new_mark("run-live"))
    with subprocess.Popen(SLEEP, env=env) as process:
        assert process.pid not in everyone(find_orphans(places))
        process.kill()


def test_within_a_live_run(abandon: Abandon, places: Places) -> None:
    """An inner host's process is sheltered while an outer host lives: its end will end it."""
    process = abandon(*SLEEP, env={MARKER: os.environ[MARKER]})
    seen = find_orphans(places)
    assert process.pid in pids(seen.sheltered)
    assert process.pid not in pids(seen.orphans)


def test_all_hosts_dead(abandon: Abandon, places: Places) -> None:
    """Within a run within a run, with every host dead, it is an orphan of the innermost."""
    process = abandon(*SLEEP, run_id="run-inner", env={MARKER: str(dead_mark("run-outer"))})
    assert the(process, find_orphans(places).orphans).mark.run_id == "run-inner"


@pytest.mark.parametrize("where", ["ours", "theirs"])
def test_kept(abandon: Abandon, places: Places, tmp_path: Path, where: str) -> None:
    """What a run has kept on purpose is listed as kept, wherever its own host has noted that."""
    theirs = Places(tmp_path / "elsewhere")
    noted = places if where == "ours" else theirs
    noted.kept.mkdir(parents=True)
    (noted.kept / "run-kept").touch()
    process = abandon(*SLEEP, run_id="run-kept", env={"GEMINIDS_HOME": str(theirs.root)})
    seen = find_orphans(places)
    assert process.pid in pids(seen.kept)
    assert process.pid not in pids(seen.orphans)


def test_elsewhere(abandon: Abandon, places: Places, tmp_path: Path) -> None:
    """An orphan of an installation with another GEMINIDS_HOME is listed apart: it is not ours to end."""
    process = abandon(*SLEEP, env={"GEMINIDS_HOME": str(tmp_path / "elsewhere")})
    seen = find_orphans(places)
    assert process.pid in pids(seen.elsewhere)
    assert process.pid not in pids(seen.orphans)


def test_ancestors(tmp_path: Path) -> None:
    """Whoever asks from within an orphan's shell is never told to end that shell."""
    look = "from geminids.process.orphans import find_orphans as f; print([o.pid for o in f().orphans])"
    script = f'echo $$; "{sys.executable}" -c "{look}"; true'
    env = {**os.environ, "GEMINIDS_HOME": str(tmp_path), MARKER: str(dead_mark())}
    said = subprocess.run(["sh", "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True)
    shell, listed = said.stdout.splitlines()
    assert shell not in listed.strip("[]").split(", ")


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="needs root, to start another user's process"
)
def test_other_user(places: Places) -> None:
    """Another user's processes are not ours to judge: that user's notes are elsewhere."""
    with subprocess.Popen(SLEEP, env={MARKER: str(dead_mark())}, user=65534) as process:
        assert process.pid not in everyone(find_orphans(places))
        process.kill()


def test_other_container(places: Places) -> None:
    """A process with pids of its own is not judged: the host's pid in its mark means nothing here."""
    mark = dead_mark()
    command = ["unshare", "--pid", "--fork", "--kill-child", *SLEEP]
    try:
        outer = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], MARKER: str(mark)}, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        pytest.skip("needs unshare")
    with outer:
        me = psutil.Process(outer.pid)
        until(lambda: outer.poll() is not None or any(c.name() == "sleep" for c in me.children()))
        if outer.poll() is not None:
            pytest.skip("this system allows no pid namespaces")
        inner = me.children()[0].pid
        assert inner in {process.pid for process in marked(str(mark))}
        assert inner not in everyone(find_orphans(places))
        outer.kill()


def test_end(abandon: Abandon, places: Places, tmp_path: Path) -> None:
    """Orphans are asked, then killed; what is gone is returned with the signal that did it."""
    ready = tmp_path / "ready"
    meek, stubborn = abandon(*SLEEP), abandon(*STUBBORN, env={"READY": str(ready)})
    until(ready.exists)
    found = find_orphans(places).orphans
    ended = end_orphans([the(meek, found), the(stubborn, found)], grace=0.3)
    assert {one.pid: one.signal for one in ended} == {meek.pid: "TERM", stubborn.pid: "KILL"}
    assert gone(meek)
    assert gone(stubborn)


@pytest.mark.parametrize("other", ["start", "mark", "pid"])
def test_strangers(abandon: Abandon, places: Places, other: str) -> None:
    """A process that is not the very one that was found, by pid, start time and mark, gets no signal."""
    process = abandon(*SLEEP)
    one = the(process, find_orphans(places).orphans)
    if other == "start":
        one = msgspec.structs.replace(one, started_at=one.started_at - 60)
    elif other == "mark":
        one = msgspec.structs.replace(one, mark=dead_mark())
    else:
        one = msgspec.structs.replace(one, pid=os.getpid())
    assert end_orphans([one], grace=0.2) == []
    assert not gone(process)


def test_ended_before(abandon: Abandon, places: Places) -> None:
    """An orphan that ended by itself meanwhile is not claimed."""
    process = abandon(*SLEEP)
    one = the(process, find_orphans(places).orphans)
    process.kill()
    until(lambda: gone(process))
    assert end_orphans([one]) == []


def test_command(abandon: Abandon, places: Places) -> None:
    """Of a command, secrets are masked, control characters dropped, and not all is shown."""
    key = "AIzaSy-a-key-of-somebody"
    words = f"sleep 300; : {key} \x1b[31m\n" + "x" * 200
    process = abandon("sh", "-c", words, env={"GEMINI_API_KEY": key})
    one = the(process, find_orphans(places).orphans)
    assert key not in one.command
    assert "***" in one.command
    assert one.command.isprintable()
    assert len(one.command) <= 80


def test_forget_kept(abandon: Abandon, places: Places) -> None:
    """A note goes when all of its run's processes have ended, and not while it is young."""
    abandon(*SLEEP, run_id="run-lives")
    places.kept.mkdir(parents=True)
    for name in ("run-lives", "run-over", "run-young"):
        (places.kept / name).touch()
        if name != "run-young":
            os.utime(places.kept / name, (0, 0))
    assert forget_kept(places) == ["run-over"]
    assert sorted(os.listdir(places.kept)) == ["run-lives", "run-young"]


def test_forget_nothing(places: Places) -> None:
    """Where nothing was ever kept, there is nothing to forget."""
    assert forget_kept(places) == []
    assert not places.root.exists()


def test_seen_within_exec(tmp_path: Path) -> None:
    """A program is found by its mark at every look, though it does nothing but exec."""
    again = tmp_path / "again"
    again.write_text(f"exec sh {again}\n")
    mark = new_mark("run-exec")
    with subprocess.Popen(["sh", str(again)], env=with_mark(os.environ, mark)) as process:
        until(lambda: marked(str(mark)))
        found = [{one.pid for one in marked(str(mark))} for _ in range(40)]
        process.kill()
    assert found == [{process.pid}] * 40
