"""Tests of orphans, which are processes of dead hosts, with real hosts that die."""

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

# Spawns the given command, without a guard, and dies.
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
    """A function that lets a host start a program and die, and returns the program's process.

    The program is ended after the test, by its mark.
    """
    marks: list[str] = []

    def abandon(*argv: str, run_id: str = "run-x", env: dict[str, str] | None = None) -> psutil.Process:
        outside = {name: value for name, value in os.environ.items() if name != MARKER}
        outside["GEMINIDS_HOME"] = str(places.root)
        command = [sys.executable, "-c", HOST, run_id, *argv]
        done = subprocess.run(command, env={**outside, **(env or {})}, stdout=subprocess.PIPE, check=True)
        pid, mark = done.stdout.decode().split()
        marks.append(mark)
        return psutil.Process(int(pid))

    yield abandon
    for mark in marks:
        for process in marked(mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until(functools.partial(none_left, mark))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def dead_mark(run_id: str = "run-dead") -> Mark:
    """The mark of a host that has ended."""
    host = subprocess.Popen(["true"])
    host.wait()
    return Mark(host.pid, int(time.time() * 1000), "0123456789ab", run_id)


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


def has_ended(process: psutil.Process) -> bool:
    """Whether the process has ended.

    A zombie, which init has not collected yet, counts as ended.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def none_left(mark: str) -> bool:
    return not marked(mark)


def pids(orphans: tuple[Orphan, ...]) -> set[int]:
    return {orphan.pid for orphan in orphans}


def all_pids(survey: Survey) -> set[int]:
    return pids(survey.orphans + survey.kept + survey.sheltered + survey.elsewhere)


def orphan_of(process: psutil.Process, orphans: tuple[Orphan, ...]) -> Orphan:
    return next(orphan for orphan in orphans if orphan.pid == process.pid)


def test_a_process_of_a_dead_host_is_found(abandon: Abandon, places: Places) -> None:
    """A marked process whose host has died is an orphan with its mark, start time, command and
    age."""
    process = abandon(*SLEEP, run_id="run-of-mine")
    orphan = orphan_of(process, find_orphans(places).orphans)
    assert orphan.mark.run_id == "run-of-mine"
    assert not orphan.mark.host_is_alive()
    assert orphan.started_at == pytest.approx(process.create_time(), abs=1)
    assert orphan.command == "sleep 300"
    assert 0 <= orphan.age < 60


def test_a_process_of_a_live_host_is_no_orphan(places: Places) -> None:
    """A process whose host is alive is not an orphan, even if an outer host is dead."""
    env = with_mark(with_mark({"PATH": os.environ["PATH"]}, dead_mark()), new_mark("run-live"))
    with subprocess.Popen(SLEEP, env=env) as process:
        assert process.pid not in all_pids(find_orphans(places))
        process.kill()


def test_an_inner_run_of_a_live_host_is_sheltered(abandon: Abandon, places: Places) -> None:
    """A process of a dead inner host is not an orphan while the outer host is alive."""
    process = abandon(*SLEEP, env={MARKER: os.environ[MARKER]})
    survey = find_orphans(places)
    assert process.pid in pids(survey.sheltered)
    assert process.pid not in pids(survey.orphans)


def test_nested_runs_with_dead_hosts(abandon: Abandon, places: Places) -> None:
    """If all hosts of nested runs are dead, the process is an orphan of the innermost."""
    process = abandon(*SLEEP, run_id="run-inner", env={MARKER: str(dead_mark("run-outer"))})
    assert orphan_of(process, find_orphans(places).orphans).mark.run_id == "run-inner"


@pytest.mark.parametrize("recorded_in", ["ours", "theirs"])
def test_kept_processes_are_listed_apart(
    abandon: Abandon, places: Places, tmp_path: Path, recorded_in: str
) -> None:
    """A process that a run kept on purpose is listed as kept, also if only the home of its own host
    records that."""
    other_places = Places(tmp_path / "elsewhere")
    recording_places = places if recorded_in == "ours" else other_places
    recording_places.kept.mkdir(parents=True)
    (recording_places.kept / "run-kept").touch()
    process = abandon(*SLEEP, run_id="run-kept", env={"GEMINIDS_HOME": str(other_places.root)})
    survey = find_orphans(places)
    assert process.pid in pids(survey.kept)
    assert process.pid not in pids(survey.orphans)


def test_orphans_of_another_home_are_listed_apart(abandon: Abandon, places: Places, tmp_path: Path) -> None:
    """An orphan of another GEMINIDS_HOME is listed separately."""
    process = abandon(*SLEEP, env={"GEMINIDS_HOME": str(tmp_path / "elsewhere")})
    survey = find_orphans(places)
    assert process.pid in pids(survey.elsewhere)
    assert process.pid not in pids(survey.orphans)


def test_ancestors_are_not_listed(tmp_path: Path) -> None:
    """`find_orphans` does not list the ancestors of the process that calls it."""
    search = "from geminids.process.orphans import find_orphans as f; print([o.pid for o in f().orphans])"
    script = f'echo $$; "{sys.executable}" -c "{search}"; true'
    env = {**os.environ, "GEMINIDS_HOME": str(tmp_path), MARKER: str(dead_mark())}
    done = subprocess.run(["sh", "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True)
    shell, listed = done.stdout.splitlines()
    assert shell not in listed.strip("[]").split(", ")


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root can start a process of another user"
)
def test_processes_of_another_user_are_not_listed(places: Places) -> None:
    """Processes of another user are not listed, because that user has its own records."""
    with subprocess.Popen(SLEEP, env={MARKER: str(dead_mark())}, user=65534) as process:
        assert process.pid not in all_pids(find_orphans(places))
        process.kill()


def test_processes_of_another_pid_namespace_are_not_listed(places: Places) -> None:
    """A process in another pid namespace is not listed, because the host's pid in its mark means
    nothing here."""
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
        wait_until(lambda: outer.poll() is not None or any(c.name() == "sleep" for c in me.children()))
        if outer.poll() is not None:
            pytest.skip("this system allows no pid namespaces")
        inner = me.children()[0].pid
        assert inner in {process.pid for process in marked(str(mark))}
        assert inner not in all_pids(find_orphans(places))
        outer.kill()


def test_orphans_are_ended(abandon: Abandon, places: Places, tmp_path: Path) -> None:
    """Orphans get SIGTERM, then SIGKILL; each ended orphan is returned with its last signal."""
    ready = tmp_path / "ready"
    obedient, stubborn = abandon(*SLEEP), abandon(*STUBBORN, env={"READY": str(ready)})
    wait_until(ready.exists)
    orphans = find_orphans(places).orphans
    ended = end_orphans([orphan_of(obedient, orphans), orphan_of(stubborn, orphans)], grace=0.3)
    assert {process.pid: process.signal for process in ended} == {obedient.pid: "TERM", stubborn.pid: "KILL"}
    assert has_ended(obedient)
    assert has_ended(stubborn)


@pytest.mark.parametrize("difference", ["start", "mark", "pid"])
def test_another_process_gets_no_signal(abandon: Abandon, places: Places, difference: str) -> None:
    """A process whose pid, start time or mark differs from the orphan's gets no signal."""
    process = abandon(*SLEEP)
    orphan = orphan_of(process, find_orphans(places).orphans)
    if difference == "start":
        orphan = msgspec.structs.replace(orphan, started_at=orphan.started_at - 60)
    elif difference == "mark":
        orphan = msgspec.structs.replace(orphan, mark=dead_mark())
    else:
        orphan = msgspec.structs.replace(orphan, pid=os.getpid())
    assert end_orphans([orphan], grace=0.2) == []
    assert not has_ended(process)


def test_an_orphan_that_ended_by_itself(abandon: Abandon, places: Places) -> None:
    """An orphan that ended by itself is not reported as ended by us."""
    process = abandon(*SLEEP)
    orphan = orphan_of(process, find_orphans(places).orphans)
    process.kill()
    wait_until(lambda: has_ended(process))
    assert end_orphans([orphan]) == []


def test_the_command_of_an_orphan(abandon: Abandon, places: Places) -> None:
    """The command of an orphan is shortened, with secrets masked and control characters removed."""
    key = "AIzaSy-a-key-of-somebody"
    command = f"sleep 300; : {key} \x1b[31m\n" + "x" * 200
    process = abandon("sh", "-c", command, env={"GEMINI_API_KEY": key})
    orphan = orphan_of(process, find_orphans(places).orphans)
    assert key not in orphan.command
    assert "***" in orphan.command
    assert orphan.command.isprintable()
    assert len(orphan.command) <= 80


def test_old_records_are_removed(abandon: Abandon, places: Places) -> None:
    """A record of kept processes is removed when all processes of its run have ended, unless the
    record is new."""
    abandon(*SLEEP, run_id="run-lives")
    places.kept.mkdir(parents=True)
    for name in ("run-lives", "run-over", "run-young"):
        (places.kept / name).touch()
        if name != "run-young":
            os.utime(places.kept / name, (0, 0))
    assert forget_kept(places) == ["run-over"]
    assert sorted(os.listdir(places.kept)) == ["run-lives", "run-young"]


def test_without_records_nothing_is_removed(places: Places) -> None:
    """Without records `forget_kept` removes nothing and creates no folder."""
    assert forget_kept(places) == []
    assert not places.root.exists()


def test_a_process_is_found_during_exec(tmp_path: Path) -> None:
    """A program that does nothing but exec is found by its mark at every search."""
    script = tmp_path / "again"
    script.write_text(f"exec sh {script}\n")
    mark = new_mark("run-exec")
    with subprocess.Popen(["sh", str(script)], env=with_mark(os.environ, mark)) as process:
        wait_until(lambda: marked(str(mark)))
        results = [{match.pid for match in marked(str(mark))} for _ in range(40)]
        process.kill()
    assert results == [{process.pid}] * 40
