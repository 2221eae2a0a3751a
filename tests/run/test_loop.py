"""One attempt after the other: what is waited for, what is told, and what ends it all."""

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
from complete import of
from geminids import Notice, Options, Started
from geminids.process.tree import marked
from journals import JOURNAL

StandIn = Callable[..., Options]
FAILS = """
def api(code, text):
    told = json.dumps(dict(error=dict(code=code, message=text, status="X")))
    stats = dict(total_tokens=3, input_tokens=1, output_tokens=2)
    error = dict(type="Error", message=f"[API Error: {told}]")
    return line("result", status="error", error=error, stats=stats)
def times(name):
    with open(name, "a") as file:
        file.write("x")
    return os.path.getsize(name)
"""
BUSY = FAILS + "out(INIT + api(503, 'busy'))"
ACTS = FAILS + (
    "out(INIT + line('tool_use', tool_name='run_shell_command', tool_id='t', parameters=dict(command='x')))\n"
    "out(api(503, 'busy'))"
)
ANSWERS = "out(INIT + say('no') + DONE)"


def asks_for(seconds: int) -> str:
    return f"{FAILS}out(INIT + api(429, 'Resource exhausted. Please retry in {seconds}s.'))"


def seen(options: Options, **fields: Any) -> tuple[list[Any], float]:
    began = time.monotonic()
    events = list(geminids.stream_sync("hi", options, **fields))
    return events, time.monotonic() - began


def told(events: list[Any]) -> list[str]:
    return [notice.message for notice in of(events, Notice, code="next_attempt")]


def test_a_wait_that_the_time_out_has_no_room_for(stand_in: StandIn) -> None:
    """The run ends at once, with the true failure, and says why it does not try again."""
    events, took = seen(stand_in(asks_for(60), retries=3, timeout=20))
    end = events[-1]
    assert (end.outcome, end.failure.kind, end.attempts) == ("failed", "quota_minute", 1)
    (why,) = told(events)
    assert re.match(
        r"no further attempt: it would start in [67]\d\.\d s, but only \d+\.\d s of the time-out", why
    ), why
    assert took < 10


def test_a_wait_of_hours(stand_in: StandIn) -> None:
    """Is not begun, and that is said."""
    events, took = seen(stand_in(FAILS + "out(INIT + api(503, 'retry in 2h'))", retries=3))
    assert events[-1].failure.kind == "server"
    assert told(events) == ["no further attempt: the API asks to wait 7200 s, which is more than 300 s"]
    assert took < 10


def test_the_wait_is_told(stand_in: StandIn) -> None:
    """Before it is waited for: what failed, and when the next attempt begins."""
    events, _ = seen(stand_in(asks_for(1), retries=1))
    (why,) = told(events)
    assert why.startswith(
        "quota_minute: Resource exhausted. Please retry in 1s; the next attempt starts over, in 1."
    )
    assert [start.attempt for start in of(events, Started)] == [1, 2]
    assert events[-1].usage.total == 6


def test_time_outs_name_the_whole(stand_in: StandIn) -> None:
    """`timeout` is the run's, not an attempt's, and is never overrun."""
    body = FAILS + "out(INIT + api(503, 'busy')) if times('n') == 1 else time.sleep(60)"
    events, took = seen(stand_in(body, retries=3, timeout=3))
    assert (events[-1].outcome, events[-1].reason, events[-1].attempts) == (
        "timed_out",
        "timed out after 3 s",
        2,
    )
    assert took < 3 + 2


@pytest.mark.parametrize("fresh", [False, True])
def test_a_session_that_is_gone(stand_in: StandIn, fresh: bool) -> None:
    """What ran in it is not begun anew in another one: the failure stands, and the notice says why."""
    events, _ = seen(stand_in(ACTS, retries=3, fresh=fresh))
    end = events[-1]
    assert (end.outcome, end.failure.kind, end.attempts, end.attempt) == ("failed", "server", 1, 1)
    goes_on, none = told(events)
    assert "resumes session s-1" in goes_on
    assert none.startswith("no further attempt: ") and "s-1" in none
    assert end.usage.total == 3, "no attempt is counted twice"


@pytest.mark.parametrize(("stamp", "stays"), [("2001-01-01T00:00:00.000Z", True), (None, False)])
def test_a_session_of_somebody_else_is_not_taken_away(
    stand_in: StandIn, tmp_path: Path, stamp: str | None, stays: bool
) -> None:
    """The caller's id has a file that holds nothing: it goes where the attempt before has begun it, and else stays."""
    now = "__import__('datetime').datetime.now().astimezone().isoformat()"
    begins = f"STAMP = {stamp!r} or {now}\nHEADER.update(startTime=STAMP, lastUpdated=STAMP)\n"
    says = f"open({str(tmp_path / 'files')!r}, 'a').write(str(os.path.exists(FILE))[0] + FILE + chr(10))\n"
    body = f"{JOURNAL}{FAILS}{begins}{says}os.path.exists(FILE) or begin()\nout(INIT + api(503, 'busy'))"
    session = "5f0c0f5e-1111-4222-8333-444455556666"
    events, _ = seen(stand_in(body, retries=1, timeout=20, session_id=session))
    runs = (tmp_path / "files").read_text().splitlines()
    assert Path(runs[0][1:]).exists()
    assert [run[0] for run in runs] == (["F"] if stays else ["F", "F"])
    assert ("already exists" in told(events)[-1]) == stays


def test_an_answer_that_cannot_be_asked_for_again_is_no_success(stand_in: StandIn) -> None:
    """Without its session the wrong form is the run's ending."""
    events, _ = seen(stand_in(ANSWERS), schema={"type": "integer"})
    assert (events[-1].outcome, events[-1].failure.kind) == ("failed", "schema_mismatch")
    assert (events[-1].answer, events[-1].value) == ("no", None)


def stopped(options: Options, when: Any, leaves: bool = False) -> tuple[geminids.Result, list[Any], float]:
    events: list[Any] = []

    async def main() -> tuple[geminids.Result, float]:
        at = time.monotonic()
        async with geminids.open_run("hi", options) as run:
            async for event in run:
                events.append(event)
                if when(event):
                    at = time.monotonic()
                    if leaves:
                        break
                    run.stop("enough")
                    run.stop("enough")
        return run.result, time.monotonic() - at

    result, took = anyio.run(main)
    return result, events, took


def waits(event: Any) -> bool:
    return isinstance(event, Notice) and event.code == "next_attempt"


@pytest.mark.parametrize("leaves", [False, True])
def test_stopped_while_it_waits(stand_in: StandIn, leaves: bool) -> None:
    """Heard at once, asked twice or by leaving the block; what was spent is counted once."""
    result, _, took = stopped(stand_in(asks_for(60), retries=3), waits, leaves)
    reason = "interrupted by the caller" if leaves else "enough"
    assert (result.outcome, result.reason, result.attempts) == ("interrupted", reason, 1)
    assert result.usage is not None
    assert result.usage.total == 3
    assert took < 2


def test_stopped_while_the_answer_is_checked(stand_in: StandIn) -> None:
    """A pattern may take for ever: whoever stops the run is heard at once, and nothing is said of the answer."""
    slow = '{"type": "string", "pattern": "^(a+)+$"}'
    options = stand_in("out(INIT + say('\"' + 'a' * 60 + '!\"') + DONE)", schema=slow)

    async def main() -> geminids.Result:
        async with geminids.open_run("hi", options) as run, anyio.create_task_group() as tasks:

            async def stop() -> None:
                while run.pid is None or _alive(run.pid):
                    await anyio.sleep(0.02)
                await anyio.sleep(1.5)
                run.stop("enough")

            tasks.start_soon(stop)
            async for _ in run:
                pass
        return run.result

    began = time.monotonic()
    result = anyio.run(main)
    assert (result.outcome, result.reason, result.value) == ("interrupted", "enough", None)
    assert time.monotonic() - began < 10


def test_stopped_while_leftovers_are_ended(stand_in: StandIn) -> None:
    """The attempt is over and does not hear it; the run does: no other attempt is begun."""
    body = BUSY + (
        "\nignores = 'import signal, time; signal.signal(15, 1); print(1, flush=True); time.sleep(60)'"
        "\nchild = subprocess.Popen([sys.executable, '-c', ignores], stdout=subprocess.PIPE)"
        "\nchild.stdout.readline()"
        "\nopen('ready', 'w').close()"
    )
    options = stand_in(body, retries=3, grace=1.5)
    events: list[Any] = []

    async def main() -> geminids.Result:
        async with geminids.open_run("hi", options) as run, anyio.create_task_group() as tasks:

            async def stop() -> None:
                while not (Path(options.cwd) / "ready").exists() or _alive(run.pid):
                    await anyio.sleep(0.01)
                run.stop("enough")

            tasks.start_soon(stop)
            events.extend([event async for event in run])
        return run.result

    result = anyio.run(main)
    assert result.attempts == 1, told(events)
    assert result.ended, "what it left is gone"


def _alive(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_earlier_attempts_left_is_told(stand_in: StandIn) -> None:
    """`ended` is the whole run's."""
    body = BUSY + (
        "\nif times('n') == 1:"
        "\n    subprocess.Popen(['sleep', '61'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    events, _ = seen(stand_in(body, retries=1))
    assert events[-1].attempts == 2
    assert [one.command for one in events[-1].ended] == ["sleep 61"]


HOST = """
import sys
import geminids
from geminids import Notice, Options
options = Options(**eval(sys.argv[1]))
for event in geminids.stream_sync("hi", options):
    if isinstance(event, Notice) and event.code == "next_attempt":
        print("waits", flush=True)
"""


def test_a_host_that_dies_between_two_attempts(stand_in: StandIn) -> None:
    """Leaves nothing: no process (the fixture looks) and no attempt that begins without it."""
    options = stand_in(asks_for(2) + "\ntimes('n')", retries=3)
    given = {name: getattr(options, name) for name in ("gemini", "home", "cwd", "retries")}
    host = subprocess.Popen([sys.executable, "-c", HOST, repr(given)], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    assert host.stdout.readline() == "waits\n"
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    host.stdout.close()
    until = time.monotonic() + 10
    while (left := marked(os.environ["GEMINI_CLI_GEMINIDS_MARK"])) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
    assert (Path(options.cwd) / "n").read_text() == "x"
