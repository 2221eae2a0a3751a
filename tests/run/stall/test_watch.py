"""Tests of the stall watch with a fake CLI: when it reports a stall, and what the report
contains."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids import Notice
from geminids.events.model import encode_event

TOOL = "line('tool_use', tool_name='run_shell_command', tool_id='t', parameters={'command': %r})"


def stalls(events: list[Any]) -> list[Any]:
    assert not [event for event in events if getattr(event, "code", None) == "stall_watch"], (
        "the stall watch failed"
    )
    return [event for event in events if isinstance(event, Notice) and event.code == "stall"]


def collect_events(options: Any, max_stalls: int | None = None, reported: Path | None = None) -> list[Any]:
    """Collect the events of a run, to its end or until there are `max_stalls` stalls.

    The file `reported` is created at the first stall.
    """
    events: list[Any] = []
    run: Any = geminids.stream_sync("hi", options)
    with contextlib.closing(run):
        for event in run:
            events.append(event)
            if isinstance(event, Notice) and event.code == "stall":
                if reported is not None:
                    reported.touch()
                if len(stalls(events)) == max_stalls:
                    break
    return events


def test_an_idle_cli_is_reported(fake_cli: Any) -> None:
    """An idle CLI is reported `stall_after` seconds after its last output, and again after twice
    that time."""
    events = collect_events(fake_cli("out(INIT)\ntime.sleep(60)", stall_after=1), max_stalls=2)
    first, second = stalls(events)
    assert (first.stall.cause, second.stall.cause) == ("idle", "idle")
    (started,) = (event for event in events if isinstance(event, geminids.Started))
    assert first.stall.pid == started.pid
    assert "no connection is open, no CPU" in first.message
    # The time counts from the last output: a slow start of the CLI is not part of the stall.
    last = events[events.index(first) - 1]
    assert 950 <= first.at - last.at < 3000
    assert 1600 < second.at - first.at < 4000


def test_a_busy_cli_is_reported_as_busy(fake_cli: Any) -> None:
    """A CLI that uses a core is reported as busy, not as hanging."""
    events = collect_events(fake_cli("out(INIT)\nwhile True: pass", stall_after=1), max_stalls=1)
    assert {notice.stall.cause for notice in stalls(events)} == {"busy"}
    assert stalls(events)[0].stall.cpu > 10


@pytest.mark.parametrize("streams", [True, False])
def test_regular_output_is_no_stall(fake_cli: Any, streams: bool) -> None:
    """Output in intervals shorter than `stall_after` prevents a stall notice; the same time without
    output does not."""
    piece = "out(say('a'))" if streams else "pass"
    body = f"out(INIT)\nfor _ in range(14):\n    time.sleep(0.15)\n    {piece}\nout(DONE)"
    events = collect_events(fake_cli(body, stall_after=1), max_stalls=1)
    assert bool(stalls(events)) is not streams


def test_output_on_stderr_is_no_progress(fake_cli: Any) -> None:
    """Output on stderr alone does not prevent a stall notice."""
    body = "out(INIT)\nfor _ in range(300):\n    time.sleep(0.1)\n    out('noise\\n', 2)\nout(DONE)"
    events = collect_events(fake_cli(body, stall_after=1), max_stalls=1)
    assert stalls(events)


def test_no_stall_notices(fake_cli: Any) -> None:
    """`stall_after=None` gives no stall notice.

    The reason of an idle timeout still says what the CLI waited for.
    """
    events = collect_events(fake_cli("out(INIT)\ntime.sleep(60)", stall_after=None, idle_timeout=1.5))
    assert stalls(events) == []
    assert events[-1].outcome == "timed_out"
    assert events[-1].reason.startswith("timed out: no output and no running tool for 1.5 s; the CLI (pid ")
    assert "no connection is open, no CPU" in events[-1].reason
    assert (events[-1].stall.cause, events[-1].stall.cpu < 10) == ("idle", True)


def test_the_timeout_of_the_run_is_no_stall(fake_cli: Any) -> None:
    """A run that ends by `timeout` has its usual reason and no stall."""
    events = collect_events(fake_cli("out(INIT)\ntime.sleep(60)", stall_after=0.5, timeout=1.5))
    assert (events[-1].outcome, events[-1].reason) == ("timed_out", "timed out after 1.5 s")
    assert events[-1].stall is None


def test_a_shell_with_children(fake_cli: Any) -> None:
    """The stall of a shell tool has the command, pid, children and CPU use, with secrets masked."""
    secret = "AIzaSyA-not-a-real-key-but-long-enough-000"
    command = f"sleep 300; echo {secret}"
    body = f"out(INIT + {TOOL % command})\nsubprocess.run(['bash', '-c', {command!r}])"
    events = collect_events(fake_cli(body, stall_after=1, env={"GEMINI_API_KEY": secret}), max_stalls=1)
    stall = stalls(events)[0].stall
    assert (stall.cause, stall.tool) == ("tool", "run_shell_command")
    assert stall.cpu is not None and stall.cpu < 10
    assert [child.command for child in stall.children] == ["sleep 300"]
    assert f"pid {stall.pid}, no CPU, child processes: sleep 300 (pid " in stalls(events)[0].message
    assert not any(secret.encode() in encode_event(event) for event in events)


def test_processes_that_start_and_end_during_the_watch(fake_cli: Any) -> None:
    """A tool that starts and ends programs all the time does not break the watch."""
    body = (
        f"out(INIT + {TOOL % 'make'})\nchild = subprocess.Popen(['bash', '-c', 'while :; do /bin/true; done'])\n"
        "time.sleep(2)\nchild.kill()\nchild.wait()\nout(DONE)"
    )
    events = collect_events(fake_cli(body, stall_after=0.2))
    assert {notice.stall.cause for notice in stalls(events)} == {"tool"}
    assert events[-1].outcome == "success"


def test_a_retry_that_stderr_reports(fake_cli: Any) -> None:
    """The stall gives the attempt, the number of attempts, the HTTP status and the time of the next
    attempt, until the CLI prints something."""
    body = (
        "out(INIT)\nout('Attempt 3 failed: Quota. Retrying after 12000ms...\\n', 2)\n"
        "while not os.path.exists('reported'): time.sleep(0.05)\n"
        "out(say('a'))\ntime.sleep(60)"
    )
    options = fake_cli(body, stall_after=1, model="flash")
    events = collect_events(options, max_stalls=2, reported=Path(options.cwd, "reported"))
    first, second = stalls(events)
    assert re.fullmatch(r"API retry 3 of 10 after HTTP 429, next attempt in about (9|10|11) s", first.message)
    stall = first.stall
    assert (stall.cause, stall.attempt, stall.of, stall.http_status) == ("retry", 3, 10, 429)
    assert 8.5 < stall.next_s < 12
    assert second.stall.cause == "idle"


@pytest.mark.parametrize("after", [0.001, 10**8])
def test_extreme_values_of_stall_after(fake_cli: Any, after: float) -> None:
    """A tiny `stall_after` gives a limited number of notices and little CPU use; a huge one gives
    none."""
    options = fake_cli("out(INIT)\ntime.sleep(1.5)\nout(DONE)", stall_after=after)
    start = time.process_time()
    events = collect_events(options)
    count = len(stalls(events))
    assert 0 < count < 20 if after < 1 else count == 0
    assert time.process_time() - start < 1.5


@pytest.mark.anyio
async def test_the_watch_leaves_no_thread(fake_cli: Any, anyio_backend: str) -> None:
    """On both event loops the watch reports stalls, and leaves no thread after the run."""
    options = fake_cli("out(INIT)\ntime.sleep(1.2)\nout(DONE)", stall_after=0.4)
    async with geminids.open_run("hi", options) as run:
        events = [event async for event in run]
    assert stalls(events)
    assert isinstance(events[-1], geminids.Finished)
    await anyio.sleep(1.2)
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    # The event loop keeps idle threads of its own, which have other names.
    assert [name for name in names if "geminids" in name] == []
