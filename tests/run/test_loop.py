"""Tests of retries: the waits between attempts, their notices, and what stops them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from geminids import Notice, Options, Started
from geminids.process.tree import marked
from journals import JOURNAL

FakeCli = Callable[..., Options]
HELPERS = """
def api(code, text):
    body = json.dumps(dict(error=dict(code=code, message=text, status="X")))
    stats = dict(total_tokens=3, input_tokens=1, output_tokens=2)
    error = dict(type="Error", message=f"[API Error: {body}]")
    return line("result", status="error", error=error, stats=stats)
def times(name):
    with open(name, "a") as file:
        file.write("x")
    return os.path.getsize(name)
"""
FAILS = HELPERS + "out(INIT + api(503, 'busy'))"
CALLS_A_TOOL_AND_FAILS = HELPERS + (
    "out(INIT + line('tool_use', tool_name='run_shell_command', tool_id='t', parameters=dict(command='x')))\n"
    "out(api(503, 'busy'))"
)
ANSWERS_NO = "out(INIT + say('no') + DONE)"


def asks_to_wait(seconds: int) -> str:
    return f"{HELPERS}out(INIT + api(429, 'Resource exhausted. Please retry in {seconds}s.'))"


def collect_events(options: Options, **fields: Any) -> tuple[list[Any], float]:
    start = time.monotonic()
    events = list(geminids.stream_sync("hi", options, **fields))
    return events, time.monotonic() - start


def retry_notices(events: list[Any]) -> list[str]:
    return [notice.message for notice in select_events(events, Notice, code="next_attempt")]


def test_a_wait_beyond_the_timeout_ends_the_run(fake_cli: FakeCli) -> None:
    """If the wait for the next attempt exceeds the timeout, the run ends at once with the original
    failure, and a notice gives the reason."""
    events, took = collect_events(fake_cli(asks_to_wait(60), retries=3, timeout=20))
    end = events[-1]
    assert (end.outcome, end.failure.kind, end.attempts) == ("failed", "quota_minute", 1)
    (message,) = retry_notices(events)
    assert re.match(
        r"no further attempt: the next attempt would start in [67]\d\.\d s, but only \d+\.\d s of `timeout`",
        message,
    ), message
    assert took < 10


def test_a_wait_of_hours_ends_the_run(fake_cli: FakeCli) -> None:
    """If the API asks for a wait over 300 s, no further attempt starts, and a notice gives the
    reason."""
    events, took = collect_events(fake_cli(HELPERS + "out(INIT + api(503, 'retry in 2h'))", retries=3))
    assert events[-1].failure.kind == "server"
    assert retry_notices(events) == [
        "no further attempt: the API asks to wait 7200 s, but a run waits at most 300 s"
    ]
    assert took < 10


def test_the_wait_is_reported(fake_cli: FakeCli) -> None:
    """A notice before the wait says what failed and when the next attempt starts; the usage of both
    attempts is added."""
    events, _ = collect_events(fake_cli(asks_to_wait(1), retries=1))
    (message,) = retry_notices(events)
    assert message.startswith(
        "quota_minute: Resource exhausted. Please retry in 1s; the next attempt starts over, in 1."
    )
    assert [started.attempt for started in select_events(events, Started)] == [1, 2]
    assert events[-1].usage.total == 6


def test_the_timeout_limits_the_whole_run(fake_cli: FakeCli) -> None:
    """`timeout` limits the whole run and not each attempt."""
    body = HELPERS + "out(INIT + api(503, 'busy')) if times('n') == 1 else time.sleep(60)"
    events, took = collect_events(fake_cli(body, retries=3, timeout=3))
    assert (events[-1].outcome, events[-1].reason, events[-1].attempts) == (
        "timed_out",
        "timed out after 3 s",
        2,
    )
    assert took < 3 + 2


@pytest.mark.parametrize("fresh", [False, True])
def test_a_missing_session_ends_the_retries(fake_cli: FakeCli, fresh: bool) -> None:
    """If the session to resume is missing, the failure stays and a notice gives the reason: tool
    calls are not repeated in another session."""
    events, _ = collect_events(fake_cli(CALLS_A_TOOL_AND_FAILS, retries=3, fresh=fresh))
    end = events[-1]
    assert (end.outcome, end.failure.kind, end.attempts, end.attempt) == ("failed", "server", 1, 1)
    resumes, gives_up = retry_notices(events)
    assert "resumes session s-1" in resumes
    assert gives_up.startswith("no further attempt: ") and "s-1" in gives_up
    assert end.usage.total == 3, "no attempt is counted twice"


@pytest.mark.parametrize(("stamp", "is_kept"), [("2001-01-01T00:00:00.000Z", True), (None, False)])
def test_only_a_session_of_this_run_is_removed(
    fake_cli: FakeCli, tmp_path: Path, stamp: str | None, is_kept: bool
) -> None:
    """An empty session file is removed before the next attempt if this run created it.

    A file from before the run stays, and the run ends.
    """
    now = "__import__('datetime').datetime.now().astimezone().isoformat()"
    sets_times = f"STAMP = {stamp!r} or {now}\nHEADER.update(startTime=STAMP, lastUpdated=STAMP)\n"
    records_file = (
        f"open({str(tmp_path / 'files')!r}, 'a').write(str(os.path.exists(FILE))[0] + FILE + chr(10))\n"
    )
    body = f"{JOURNAL}{HELPERS}{sets_times}{records_file}os.path.exists(FILE) or begin()\nout(INIT + api(503, 'busy'))"
    session = "5f0c0f5e-1111-4222-8333-444455556666"
    events, _ = collect_events(fake_cli(body, retries=1, timeout=20, session_id=session))
    runs = (tmp_path / "files").read_text().splitlines()
    assert Path(runs[0][1:]).exists()
    assert [run[0] for run in runs] == (["F"] if is_kept else ["F", "F"])
    assert ("already exists" in retry_notices(events)[-1]) == is_kept


def test_an_invalid_answer_without_a_session_fails(fake_cli: FakeCli) -> None:
    """An answer that breaks the schema fails the run if there is no session in which to ask
    again."""
    events, _ = collect_events(fake_cli(ANSWERS_NO), schema={"type": "integer"})
    assert (events[-1].outcome, events[-1].failure.kind) == ("failed", "schema_mismatch")
    assert (events[-1].answer, events[-1].value) == ("no", None)


def stop_when(
    options: Options, when: Any, leave_block: bool = False
) -> tuple[geminids.Result, list[Any], float]:
    events: list[Any] = []

    async def main() -> tuple[geminids.Result, float]:
        stop_time = time.monotonic()
        async with geminids.open_run("hi", options) as run:
            async for event in run:
                events.append(event)
                if when(event):
                    stop_time = time.monotonic()
                    if leave_block:
                        break
                    run.stop("enough")
                    run.stop("enough")
        return run.result, time.monotonic() - stop_time

    result, took = anyio.run(main)
    return result, events, took


def is_wait_notice(event: Any) -> bool:
    return isinstance(event, Notice) and event.code == "next_attempt"


@pytest.mark.parametrize("leave_block", [False, True])
def test_stop_during_the_wait(fake_cli: FakeCli, leave_block: bool) -> None:
    """A stop during the wait takes effect at once, also when it is repeated; usage is counted
    once."""
    result, _, took = stop_when(fake_cli(asks_to_wait(60), retries=3), is_wait_notice, leave_block)
    reason = "interrupted by the caller" if leave_block else "enough"
    assert (result.outcome, result.reason, result.attempts) == ("interrupted", reason, 1)
    assert result.usage is not None
    assert result.usage.total == 3
    assert took < 2


def test_stop_during_the_validation(fake_cli: FakeCli) -> None:
    """A stop takes effect while a slow pattern is validated; the run is `interrupted` and has no
    value."""
    slow = '{"type": "string", "pattern": "^(a+)+$"}'
    options = fake_cli("out(INIT + say('\"' + 'a' * 60 + '!\"') + DONE)", schema=slow)

    async def main() -> geminids.Result:
        async with geminids.open_run("hi", options) as run, anyio.create_task_group() as tasks:

            async def stop() -> None:
                while run.pid is None or _is_alive(run.pid):
                    await anyio.sleep(0.02)
                await anyio.sleep(1.5)
                run.stop("enough")

            tasks.start_soon(stop)
            async for _ in run:
                pass
        return run.result

    start = time.monotonic()
    result = anyio.run(main)
    assert (result.outcome, result.reason, result.value) == ("interrupted", "enough", None)
    assert time.monotonic() - start < 10


def test_stop_while_leftovers_are_ended(fake_cli: FakeCli) -> None:
    """After a stop while leftover processes are ended, no further attempt starts."""
    body = FAILS + (
        "\nignores = 'import signal, time; signal.signal(15, 1); print(1, flush=True); time.sleep(60)'"
        "\nchild = subprocess.Popen([sys.executable, '-c', ignores], stdout=subprocess.PIPE)"
        "\nchild.stdout.readline()"
        "\nopen('ready', 'w').close()"
    )
    options = fake_cli(body, retries=3, grace=1.5)
    events: list[Any] = []

    async def main() -> geminids.Result:
        async with geminids.open_run("hi", options) as run, anyio.create_task_group() as tasks:

            async def stop() -> None:
                while not (Path(options.cwd) / "ready").exists() or _is_alive(run.pid):
                    await anyio.sleep(0.01)
                run.stop("enough")

            tasks.start_soon(stop)
            events.extend([event async for event in run])
        return run.result

    result = anyio.run(main)
    assert result.attempts == 1, retry_notices(events)
    assert result.ended, "the leftover process was not ended"


def _is_alive(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_leftovers_of_earlier_attempts_are_reported(fake_cli: FakeCli) -> None:
    """`ended` lists leftover processes of all attempts."""
    body = FAILS + (
        "\nif times('n') == 1:"
        "\n    subprocess.Popen(['sleep', '61'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    events, _ = collect_events(fake_cli(body, retries=1))
    assert events[-1].attempts == 2
    assert [process.command for process in events[-1].ended] == ["sleep 61"]


HOST = """
import sys
import geminids
from geminids import Notice, Options
options = Options(**eval(sys.argv[1]))
for event in geminids.stream_sync("hi", options):
    if isinstance(event, Notice) and event.code == "next_attempt":
        print("waits", flush=True)
"""


def test_a_host_that_is_killed_between_attempts(fake_cli: FakeCli) -> None:
    """If the host process is killed between two attempts, no process is left and no further attempt
    starts."""
    options = fake_cli(asks_to_wait(2) + "\ntimes('n')", retries=3)
    fields = {name: getattr(options, name) for name in ("gemini", "home", "cwd", "retries")}
    host = subprocess.Popen([sys.executable, "-c", HOST, repr(fields)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    assert host.stdout.readline() == "waits\n"
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 10
    while (left := marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert (Path(options.cwd) / "n").read_text() == "x"
