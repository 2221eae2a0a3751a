"""A session is looked up before a run, and one run at a time works in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import geminids
from complete import lawful, of, told
from geminids import Notice, Options, Started
from geminids.config.paths import Places
from geminids.events.model import decode_event
from geminids.launch.errors import Refused
from geminids.process.marker import MARKER, new_mark, with_mark
from geminids.run.session_claim import Claim
from geminids.sessions.lock import Holder, Lock, try_hold
from journals import JOURNAL

ID = "5f0c0f5e-1111-4222-8333-444455556666"
# Begins or goes on with the session, says when it began and when it ended, and waits for the file `go`.
BODY = f"""{JOURNAL}
if not os.path.exists(FILE):
    begin()
open("log", "a").write("begin " + str(os.getpid()) + "\\n")
out(INIT)
write(dict(id="u" + str(os.getpid()), timestamp=STAMP, type="user", content="hi"))
while not os.path.exists("go"):
    time.sleep(0.01)
answer("m" + str(os.getpid()))
open("log", "a").write("end " + str(os.getpid()) + "\\n")
out(say("done") + DONE)
"""


@pytest.fixture
def options(stand_in: Any) -> Options:
    """A CLI that keeps a session; one run of it is over."""
    made: Options = stand_in(BODY)
    _go(made)
    assert told("hello", made)[1].session_id == ID
    Path(made.cwd, "go").unlink()
    return made


def _go(options: Options) -> None:
    Path(options.cwd, "go").touch()


def _log(options: Options) -> list[str]:
    return [line.split()[0] for line in Path(options.cwd, "log").read_text().splitlines()]


def _with(options: Options, **fields: Any) -> Options:
    from msgspec.structs import replace

    return replace(options, **{"resume": ID, **fields})


def _held(run_id: str = "run-other") -> Lock:
    got = try_hold(ID, run_id)
    assert isinstance(got, Lock), got
    return got


def _free() -> bool:
    got = try_hold(ID, "run-after")
    if isinstance(got, Lock):
        got.release()
        return True
    return False


async def _until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_resumed_twice_at_once_is_one_after_the_other(options: Options) -> None:
    """The second waits, says for whom, and begins when the first has ended; the session is free afterwards."""
    seen: list[list[Any]] = [[], []]
    runs: list[Any] = []

    async def one(events: list[Any]) -> None:
        async with geminids.open_run("hi", _with(options)) as run:
            runs.append(run)
            async for event in run:
                events.append(event)  # noqa: PERF401 - others look at them meanwhile

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, seen[0])
        await _until(lambda: _log(options).count("begin") == 2)
        tasks.start_soon(one, seen[1])
        await _until(lambda: of(seen[1], Notice, code="session_busy"))
        assert len(runs) == 2 and runs[1].pid is None
        _go(options)
    assert _log(options) == ["begin", "end"] * 3
    for events, run in zip(seen, runs, strict=True):
        assert lawful(events, run.result).outcome == "success"
        assert run.result.session_id == ID
    (notice,) = of(seen[1], Notice, code="session_busy")
    assert notice.level == "warning"
    assert runs[0].id in notice.message and str(os.getpid()) in notice.message
    assert not of(seen[0], Notice, code="session_busy")
    assert _free()
    assert list(Places.of().locks.iterdir()) == []


def test_who_does_not_want_to_wait_is_told_at_once(options: Options) -> None:
    """`failed(session_busy)`, retryable, with the holder; nothing was spawned, and the holder keeps it."""
    with _held() as lock:
        began = time.monotonic()
        events, result = told("hi", _with(options, when_busy="fail"))
        assert time.monotonic() - began < 0.5
        assert lock.held and not _free()
    assert len(events) == 1
    assert result.failure is not None
    assert (result.outcome, result.failure.kind, result.failure.retryable) == ("failed", "session_busy", True)
    assert f"run run-other of process {os.getpid()}" in result.failure.message
    assert not result.clear_session
    assert _log(options) == ["begin", "end"]
    _go(options)
    assert told("hi", _with(options, when_busy="fail"))[1].ok


def test_a_new_session_whose_id_is_in_use(stand_in: Any) -> None:
    """An id that the caller gives is held before anything is spawned: the file would be another run's too."""
    options = stand_in(BODY, session_id=ID, when_busy="fail")
    with _held():
        _, result = told("hi", options)
        assert result.failure is not None and result.failure.kind == "session_busy"
    assert not Path(options.cwd, "log").exists()


def test_a_lock_that_cannot_be_made_is_a_clear_failure(options: Options) -> None:
    """It names the folder and says what to do, and nothing is spawned."""
    locks = Places.of().locks
    locks.rmdir()
    locks.touch()
    events, result = told("hi", _with(options))
    assert len(events) == 1
    assert result.failure is not None
    assert result.failure.kind == "config"
    assert str(locks) in result.failure.message + result.failure.hint
    _go(options)
    events, result = told("hi", _with(options, resume=None))
    assert result.ok
    assert [notice.level for notice in of(events, Notice, code="session_busy")] == ["warning"]


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["stop", "leave", "cancel", "timeout"])
async def test_a_waiter_can_be_stopped_and_leaves_nothing(options: Options, way: str) -> None:
    """By `stop()`, by leaving its block, by a cancelled scope, by its time-out: soon, and nothing was spawned."""
    lock = _held()
    fields = {"timeout": 0.4} if way == "timeout" else {}
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with geminids.open_run("hi", _with(options, **fields)) as run:
            assert run.pid is None
            async for event in run:
                if isinstance(event, Notice) and way == "stop":
                    run.stop("enough")
                elif isinstance(event, Notice) and way == "leave":
                    break
                elif isinstance(event, Notice) and way == "cancel":
                    scope.cancel()
    result = run.result
    assert result.outcome == ("timed_out" if way == "timeout" else "interrupted")
    if way == "stop":
        assert result.reason == "enough"
    assert _log(options) == ["begin", "end"]
    assert lock.held
    lock.release()
    assert _free()
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.anyio
async def test_a_new_session_is_held_from_its_first_line_on(stand_in: Any) -> None:
    """Nobody can resume it while the run that began it goes on; it is free when that is over."""
    options = stand_in(BODY)
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            if isinstance(event, Notice) and event.code == "session":
                holder = try_hold(ID, "run-x")
                assert isinstance(holder, Holder)
                assert holder.run_id == run.id
                _go(options)
    assert run.result.ok
    assert _free()


@pytest.mark.parametrize("fields", [{"timeout": 1.0}, {"max_attempts": 1}])
def test_the_session_is_free_however_the_run_ends(stand_in: Any, fields: dict[str, Any]) -> None:
    """Timed out, or died at once."""
    body = BODY if "timeout" in fields else f"{JOURNAL}\nbegin()\nout(INIT)\nos.kill(os.getpid(), 9)"
    _, result = told("hi", stand_in(body, **fields))
    assert not result.ok
    assert result.session_id == ID
    assert _free()


def test_the_processes_of_a_dead_holder_are_waited_for(options: Options) -> None:
    """Its host was killed, and a process of its run lives: until that has gone, it may write to the session."""
    places = Places.of()
    places.locks.mkdir(parents=True, exist_ok=True)
    record = {"pid": 2**22 + 1, "run_id": "run-of-the-dead", "since": 1.0}
    (places.locks / f"gemini-{ID}").write_text(json.dumps(record) + "\n")
    env = with_mark(os.environ, new_mark("run-of-the-dead"))
    program = [sys.executable, "-c", "import time; print(flush=True); time.sleep(300)"]
    left = subprocess.Popen(program, env=env, stdout=subprocess.PIPE)
    assert left.stdout is not None
    try:
        left.stdout.readline()
        claim = Claim("run-mine")
        for _ in range(3):
            holder = claim.take(ID)
            assert holder is not None and holder.run_id == "run-of-the-dead"
        other = Claim("run-third").take(ID)
        assert other is not None and other.run_id == "run-mine", "nobody else slips in meanwhile"
    finally:
        left.kill()
        left.wait()
        left.stdout.close()
    assert claim.take(ID) is None
    claim.release()
    assert _free()


Host = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def host(options: Options) -> Iterator[Host]:
    """Starts `geminids run` in processes of their own; whichever the test has not waited for is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*flags: str) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "geminids",
            "run",
            "hi",
            "-o",
            "events",
            "--gemini",
            str(options.gemini),
        ]
        argv += ["--home", options.home, "--cwd", options.cwd, "--grace", "1", "--resume", ID, *flags]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        return started[-1]

    yield start
    for one in started:
        one.terminate()
        one.communicate(timeout=30)


def _lives(pid: int) -> bool:
    """Whether that process runs: one that nobody has waited for yet has no environment any more."""
    try:
        return MARKER in psutil.Process(pid).environ()
    except psutil.Error:
        return False


def _events(host: subprocess.Popen[bytes]) -> list[Any]:
    assert host.stdout is not None
    out, _ = host.communicate(timeout=60)
    return [decode_event(line) for line in out.splitlines()]


def _first_notice(host: subprocess.Popen[bytes], code: str) -> Any:
    assert host.stdout is not None
    for line in host.stdout:
        event = decode_event(line)
        if isinstance(event, Notice) and event.code == code:
            return event
    raise AssertionError("it has ended")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_ctrl_c_ends_the_waiting(options: Options, host: Host, number: signal.Signals) -> None:
    """`geminids run` that waits for a session is ended at once by a signal, with exit code 130."""
    with _held():
        waiter = host()
        assert "run-other" in _first_notice(waiter, "session_busy").message
        began = time.monotonic()
        waiter.send_signal(number)
        events = _events(waiter)
        assert time.monotonic() - began < 3
    assert waiter.returncode == 130
    assert events[-1].outcome == "interrupted"
    assert not of(events, Started)
    assert _log(options) == ["begin", "end"]


def test_in_two_processes_it_is_one_after_the_other_too(options: Options, host: Host) -> None:
    """`--when-busy fail` gives exit code 1 at once; without it, the second begins when the first has ended."""
    first = host()
    _first_notice(first, "session")
    busy = host("--when-busy", "fail")
    assert _events(busy)[-1].failure.kind == "session_busy"
    assert busy.returncode == 1
    second = host()
    assert str(first.pid) in _first_notice(second, "session_busy").message
    _go(options)
    assert _events(first)[-1].outcome == _events(second)[-1].outcome == "success"
    assert _log(options) == ["begin", "end"] * 3


def test_a_killed_host_frees_the_session_when_its_cli_is_gone(options: Options, host: Host) -> None:
    """SIGKILL to the holder: the guard ends its CLI, and only then does the waiter begin."""
    first = host()
    _first_notice(first, "session")
    second = host()
    _first_notice(second, "session_busy")
    cli = int(Path(options.cwd, "log").read_text().split()[-1])
    assert _lives(cli)
    first.kill()
    first.communicate()
    _first_notice(second, "session")
    assert not _lives(cli)
    _go(options)
    assert _events(second)[-1].outcome == "success"
    assert _log(options) == ["begin", "end", "begin", "begin", "end"]


@pytest.mark.parametrize("resume", [ID, ID[:6], "latest"])
def test_what_is_looked_up_is_the_full_id(options: Options, resume: str) -> None:
    """The file of the session, and its id in place of how it was named; the rest of the options is as it was."""
    claim = Claim("run-1")
    found = claim.look_up(_with(options, resume=resume))
    assert found == _with(options)
    assert claim.file is not None and claim.file.name.endswith(f"{ID[:8]}.jsonl")
    assert claim.fresh is None


@pytest.mark.parametrize("resume", ["00000000-0000-4000-8000-000000000000", ID[:5]])
def test_what_is_not_there_is_refused(options: Options, resume: str) -> None:
    """Also what is too short to be sure; with `fresh`, a new one is begun and the reason kept."""
    claim = Claim("run-1")
    with pytest.raises(Refused) as caught:
        claim.look_up(_with(options, resume=resume))
    assert resume in caught.value.failure.message
    assert "Looked in" in caught.value.failure.hint
    assert claim.look_up(_with(options, resume=resume, fresh=True)) == _with(options, resume=None, fresh=True)
    assert claim.fresh == caught.value.failure.message
    assert claim.file is None


def test_without_resume_nothing_is_looked_for(options: Options) -> None:
    """And nothing is held."""
    claim = Claim("run-1")
    plain = _with(options, resume=None)
    assert claim.look_up(plain) is plain
    assert claim.take(None) is None
    claim.release()
