"""Tests of session claims: a run looks up its session before it starts, and only one run at a time
uses it."""

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
from collect_events import check_events, run_and_collect, select_events
from geminids import Notice, Options, Started
from geminids.config.paths import Places
from geminids.events.model import decode_event
from geminids.launch.errors import Refused
from geminids.process.marker import MARKER, new_mark, with_mark
from geminids.run.session_claim import Claim
from geminids.sessions.lock import Holder, Lock, try_hold
from journals import JOURNAL

ID = "5f0c0f5e-1111-4222-8333-444455556666"
# Starts or continues the session, logs its begin and end, and waits for the file `go` in between.
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
def options(fake_cli: Any) -> Options:
    """Options of a fake CLI that keeps a session, after one finished run."""
    options: Options = fake_cli(BODY)
    _let_the_cli_finish(options)
    assert run_and_collect("hello", options)[1].session_id == ID
    Path(options.cwd, "go").unlink()
    return options


def _let_the_cli_finish(options: Options) -> None:
    Path(options.cwd, "go").touch()


def _log(options: Options) -> list[str]:
    return [line.split()[0] for line in Path(options.cwd, "log").read_text().splitlines()]


def _resuming(options: Options, **fields: Any) -> Options:
    from msgspec.structs import replace

    return replace(options, **{"resume": ID, **fields})


def _hold_session(run_id: str = "run-other") -> Lock:
    lock = try_hold(ID, run_id)
    assert isinstance(lock, Lock), lock
    return lock


def _is_free() -> bool:
    lock = try_hold(ID, "run-after")
    if isinstance(lock, Lock):
        lock.release()
        return True
    return False


async def _wait_until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_two_runs_of_a_session_take_turns(options: Options) -> None:
    """A second run of the same session waits, names the holder in a notice, and starts when the
    first has ended."""
    collected: list[list[Any]] = [[], []]
    runs: list[Any] = []

    async def run_once(events: list[Any]) -> None:
        async with geminids.open_run("hi", _resuming(options)) as run:
            runs.append(run)
            async for event in run:
                events.append(event)  # noqa: PERF401 - read below while this loop runs

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_once, collected[0])
        await _wait_until(lambda: _log(options).count("begin") == 2)
        tasks.start_soon(run_once, collected[1])
        await _wait_until(lambda: select_events(collected[1], Notice, code="session_busy"))
        assert len(runs) == 2 and runs[1].pid is None
        _let_the_cli_finish(options)
    assert _log(options) == ["begin", "end"] * 3
    for events, run in zip(collected, runs, strict=True):
        assert check_events(events, run.result).outcome == "success"
        assert run.result.session_id == ID
    (notice,) = select_events(collected[1], Notice, code="session_busy")
    assert notice.level == "warning"
    assert runs[0].id in notice.message and str(os.getpid()) in notice.message
    assert not select_events(collected[0], Notice, code="session_busy")
    assert _is_free()
    assert list(Places.of().locks.iterdir()) == []


def test_when_busy_fail_does_not_wait(options: Options) -> None:
    """With `when_busy="fail"`, a busy session is a retryable failure at once.

    It names the holder, and nothing is spawned.
    """
    with _hold_session() as lock:
        start = time.monotonic()
        events, result = run_and_collect("hi", _resuming(options, when_busy="fail"))
        assert time.monotonic() - start < 0.5
        assert lock.held and not _is_free()
    assert len(events) == 1
    assert result.failure is not None
    assert (result.outcome, result.failure.kind, result.failure.retryable) == ("failed", "session_busy", True)
    assert f"run-other of process {os.getpid()}" in result.failure.message
    assert not result.clear_session
    assert _log(options) == ["begin", "end"]
    _let_the_cli_finish(options)
    assert run_and_collect("hi", _resuming(options, when_busy="fail"))[1].ok


def test_a_new_session_whose_id_is_in_use(fake_cli: Any) -> None:
    """A `session_id` that another run holds is refused before the spawn: both runs would write the
    same file."""
    options = fake_cli(BODY, session_id=ID, when_busy="fail")
    with _hold_session():
        _, result = run_and_collect("hi", options)
        assert result.failure is not None and result.failure.kind == "session_busy"
    assert not Path(options.cwd, "log").exists()


def test_a_lock_that_cannot_be_created(options: Options) -> None:
    """If the lock of a resumed session cannot be created, the failure names the folder.

    A new session starts without a lock, with a notice.
    """
    locks = Places.of().locks
    locks.rmdir()
    locks.touch()
    events, result = run_and_collect("hi", _resuming(options))
    assert len(events) == 1
    assert result.failure is not None
    assert result.failure.kind == "config"
    assert str(locks) in result.failure.message + result.failure.hint
    _let_the_cli_finish(options)
    events, result = run_and_collect("hi", _resuming(options, resume=None))
    assert result.ok
    assert [notice.level for notice in select_events(events, Notice, code="session_busy")] == ["warning"]


@pytest.mark.anyio
@pytest.mark.parametrize("stop_by", ["stop", "leave", "cancel", "timeout"])
async def test_a_waiting_run_can_be_stopped(options: Options, stop_by: str) -> None:
    """A waiting run ends soon by `stop`, by leaving its block, by cancellation and by its timeout.

    It spawns nothing and leaks no descriptor.
    """
    lock = _hold_session()
    fields = {"timeout": 0.4} if stop_by == "timeout" else {}
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        async with geminids.open_run("hi", _resuming(options, **fields)) as run:
            assert run.pid is None
            async for event in run:
                if isinstance(event, Notice) and stop_by == "stop":
                    run.stop("enough")
                elif isinstance(event, Notice) and stop_by == "leave":
                    break
                elif isinstance(event, Notice) and stop_by == "cancel":
                    scope.cancel()
    result = run.result
    assert result.outcome == ("timed_out" if stop_by == "timeout" else "interrupted")
    if stop_by == "stop":
        assert result.reason == "enough"
    assert _log(options) == ["begin", "end"]
    assert lock.held
    lock.release()
    assert _is_free()
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.anyio
async def test_a_new_session_is_locked(fake_cli: Any) -> None:
    """A new session is locked as soon as its id is known, until the run ends."""
    options = fake_cli(BODY)
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            if isinstance(event, Notice) and event.code == "session":
                holder = try_hold(ID, "run-x")
                assert isinstance(holder, Holder)
                assert holder.run_id == run.id
                _let_the_cli_finish(options)
    assert run.result.ok
    assert _is_free()


@pytest.mark.parametrize("fields", [{"timeout": 1.0}, {"max_attempts": 1}])
def test_the_session_is_free_however_the_run_ends(fake_cli: Any, fields: dict[str, Any]) -> None:
    """A run releases its session when it times out or crashes."""
    body = BODY if "timeout" in fields else f"{JOURNAL}\nbegin()\nout(INIT)\nos.kill(os.getpid(), 9)"
    _, result = run_and_collect("hi", fake_cli(body, **fields))
    assert not result.ok
    assert result.session_id == ID
    assert _is_free()


def test_processes_of_a_dead_holder_keep_the_session_busy(options: Options) -> None:
    """If the holder was killed but a process of its run is alive, the session stays busy until that
    process ends."""
    places = Places.of()
    places.locks.mkdir(parents=True, exist_ok=True)
    record = {"pid": 2**22 + 1, "run_id": "run-of-the-dead", "since": 1.0}
    (places.locks / f"gemini-{ID}").write_text(json.dumps(record) + "\n")
    env = with_mark(os.environ, new_mark("run-of-the-dead"))
    program = [sys.executable, "-c", "import time; print(flush=True); time.sleep(300)"]
    survivor = subprocess.Popen(program, env=env, stdout=subprocess.PIPE)
    assert survivor.stdout is not None
    try:
        survivor.stdout.readline()
        claim = Claim("run-mine")
        for _ in range(3):
            holder = claim.take(ID)
            assert holder is not None and holder.run_id == "run-of-the-dead"
        other = Claim("run-third").take(ID)
        assert other is not None and other.run_id == "run-mine", "no third run may get the session meanwhile"
    finally:
        survivor.kill()
        survivor.wait()
        survivor.stdout.close()
    assert claim.take(ID) is None
    claim.release()
    assert _is_free()


Host = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def host(options: Options) -> Iterator[Host]:
    """A function that starts `geminids run` as a process.

    Processes that still run after the test are ended.
    """
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
    for process in started:
        process.terminate()
        process.communicate(timeout=30)


def _is_running(pid: int) -> bool:
    """Whether the process runs. A zombie has no environment any more."""
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
    raise AssertionError("the process has ended")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_a_signal_ends_the_wait(options: Options, host: Host, number: signal.Signals) -> None:
    """A signal ends `geminids run` at once while it waits for a session, with exit code 130."""
    with _hold_session():
        waiter = host()
        assert "run-other" in _first_notice(waiter, "session_busy").message
        start = time.monotonic()
        waiter.send_signal(number)
        events = _events(waiter)
        assert time.monotonic() - start < 3
    assert waiter.returncode == 130
    assert events[-1].outcome == "interrupted"
    assert not select_events(events, Started)
    assert _log(options) == ["begin", "end"]


def test_two_processes_take_turns(options: Options, host: Host) -> None:
    """In another process, `--when-busy fail` exits with 1 at once; without it, the second run
    starts when the first has ended."""
    first = host()
    _first_notice(first, "session")
    busy = host("--when-busy", "fail")
    assert _events(busy)[-1].failure.kind == "session_busy"
    assert busy.returncode == 1
    second = host()
    assert str(first.pid) in _first_notice(second, "session_busy").message
    _let_the_cli_finish(options)
    assert _events(first)[-1].outcome == _events(second)[-1].outcome == "success"
    assert _log(options) == ["begin", "end"] * 3


def test_a_killed_host_releases_the_session_after_its_cli(options: Options, host: Host) -> None:
    """If the holding process is killed, the guard ends its CLI, and only then does the waiting run
    start."""
    first = host()
    _first_notice(first, "session")
    second = host()
    _first_notice(second, "session_busy")
    cli = int(Path(options.cwd, "log").read_text().split()[-1])
    assert _is_running(cli)
    first.kill()
    first.communicate()
    _first_notice(second, "session")
    assert not _is_running(cli)
    _let_the_cli_finish(options)
    assert _events(second)[-1].outcome == "success"
    assert _log(options) == ["begin", "end", "begin", "begin", "end"]


@pytest.mark.parametrize("resume", [ID, ID[:6], "latest"])
def test_look_up_returns_the_full_id(options: Options, resume: str) -> None:
    """`look_up` finds the session file and replaces `resume` with the full id; the other options
    are unchanged."""
    claim = Claim("run-1")
    resolved = claim.look_up(_resuming(options, resume=resume))
    assert resolved == _resuming(options)
    assert claim.file is not None and claim.file.name.endswith(f"{ID[:8]}.jsonl")
    assert claim.fresh is None


@pytest.mark.parametrize("resume", ["00000000-0000-4000-8000-000000000000", ID[:5]])
def test_a_missing_session_is_refused(options: Options, resume: str) -> None:
    """A missing session, or an id prefix that is too short, is refused.

    With `fresh` a new session starts, and the reason is kept.
    """
    claim = Claim("run-1")
    with pytest.raises(Refused) as caught:
        claim.look_up(_resuming(options, resume=resume))
    assert resume in caught.value.failure.message
    assert "Looked in" in caught.value.failure.hint
    assert claim.look_up(_resuming(options, resume=resume, fresh=True)) == _resuming(
        options, resume=None, fresh=True
    )
    assert claim.fresh == caught.value.failure.message
    assert claim.file is None


@pytest.mark.parametrize("content", ["", "not json\n", "only the header"])
def test_a_session_that_the_cli_cannot_resume_is_refused(options: Options, content: str) -> None:
    """A session whose file is empty or damaged, or has no messages, is refused before the CLI starts.

    With `fresh` a new session starts.
    """
    finder = Claim("run-1")
    finder.look_up(_resuming(options))
    assert finder.file is not None
    header = finder.file.read_text().splitlines()[0] + "\n"
    finder.file.write_text(header if content == "only the header" else content)
    claim = Claim("run-2")
    with pytest.raises(Refused) as caught:
        claim.look_up(_resuming(options))
    assert caught.value.failure.kind == "session_not_found"
    assert ID in caught.value.failure.message
    assert claim.look_up(_resuming(options, fresh=True)).resume is None
    assert claim.fresh == caught.value.failure.message
    assert _is_free()


def test_the_empty_session_of_another_run_is_not_refused(options: Options) -> None:
    """While another run holds the session, an empty file is no reason to refuse it: that run may not
    have written its prompt yet."""
    finder = Claim("run-1")
    finder.look_up(_resuming(options))
    assert finder.file is not None
    finder.file.write_text(finder.file.read_text().splitlines()[0] + "\n")
    with _hold_session():
        assert Claim("run-2").look_up(_resuming(options)).resume == ID


def test_without_resume_no_session_is_searched(options: Options) -> None:
    """Without `resume`, no session is searched or locked."""
    claim = Claim("run-1")
    plain = _resuming(options, resume=None)
    assert claim.look_up(plain) is plain
    assert claim.take(None) is None
    claim.release()
