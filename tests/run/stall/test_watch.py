"""The stall watch with a CLI that does as it is told: when it speaks, when it does not, and what it says."""

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
    assert not [one for one in events if getattr(one, "code", None) == "stall_watch"], "the watch has failed"
    return [one for one in events if isinstance(one, Notice) and one.code == "stall"]


def watched(options: Any, enough: int | None = None, told: Path | None = None) -> list[Any]:
    """The events, to the end or until so many stalls were told; `told` is a file that is made at the first."""
    events: list[Any] = []
    run: Any = geminids.stream_sync("hi", options)
    with contextlib.closing(run):
        for event in run:
            events.append(event)
            if isinstance(event, Notice) and event.code == "stall":
                if told is not None:
                    told.touch()
                if len(stalls(events)) == enough:
                    break
    return events


def test_a_cli_that_does_nothing(stand_in: Any) -> None:
    """No connection and no CPU; told after N, then after 2 N more: the intervals grow."""
    events = watched(stand_in("out(INIT)\ntime.sleep(60)", stall_after=1), enough=2)
    first, second = stalls(events)
    assert (first.stall.cause, second.stall.cause) == ("idle", "idle")
    (started,) = (one for one in events if isinstance(one, geminids.Started))
    assert first.stall.pid == started.pid
    assert "no connection is open, no CPU" in first.message
    # From the last word on: what a busy machine takes to start it is no silence.
    last = events[events.index(first) - 1]
    assert 950 <= first.at - last.at < 3000
    assert 1600 < second.at - first.at < 4000


def test_a_cli_that_works(stand_in: Any) -> None:
    """It uses a core, and is not said to hang."""
    events = watched(stand_in("out(INIT)\nwhile True: pass", stall_after=1), enough=1)
    assert {one.stall.cause for one in stalls(events)} == {"busy"}
    assert stalls(events)[0].stall.cpu > 10


@pytest.mark.parametrize("streams", [True, False])
def test_a_stream_is_no_stall(stand_in: Any, streams: bool) -> None:
    """Pieces that come more often than N are no silence; the same time without them is."""
    piece = "out(say('a'))" if streams else "pass"
    body = f"out(INIT)\nfor _ in range(14):\n    time.sleep(0.15)\n    {piece}\nout(DONE)"
    events = watched(stand_in(body, stall_after=1), enough=1)
    assert bool(stalls(events)) is not streams


def test_noise_on_stderr_is_silence(stand_in: Any) -> None:
    """What only chatters on stderr has not moved the run forward."""
    body = "out(INIT)\nfor _ in range(300):\n    time.sleep(0.1)\n    out('noise\\n', 2)\nout(DONE)"
    events = watched(stand_in(body, stall_after=1), enough=1)
    assert stalls(events)


def test_never(stand_in: Any) -> None:
    """`stall_after=None` gives no notice; an idle time-out says all the same what it waited for."""
    events = watched(stand_in("out(INIT)\ntime.sleep(60)", stall_after=None, idle_timeout=1.5))
    assert stalls(events) == []
    assert events[-1].outcome == "timed_out"
    assert events[-1].reason.startswith("timed out: no output and no running tool for 1.5 s; the CLI (pid ")
    assert "no connection is open, no CPU" in events[-1].reason
    assert (events[-1].stall.cause, events[-1].stall.cpu < 10) == ("idle", True)


def test_other_deadlines_are_what_they_were(stand_in: Any) -> None:
    """A limit for the whole run has nothing to do with silence."""
    events = watched(stand_in("out(INIT)\ntime.sleep(60)", stall_after=0.5, timeout=1.5))
    assert (events[-1].outcome, events[-1].reason) == ("timed_out", "timed out after 1.5 s")
    assert events[-1].stall is None


def test_a_shell_with_children(stand_in: Any) -> None:
    """The command, its pid, its children, and that it does nothing; secrets in command lines are masked."""
    secret = "AIzaSyA-not-a-real-key-but-long-enough-000"
    command = f"sleep 300; echo {secret}"
    body = f"out(INIT + {TOOL % command})\nsubprocess.run(['bash', '-c', {command!r}])"
    events = watched(stand_in(body, stall_after=1, env={"GEMINI_API_KEY": secret}), enough=1)
    stall = stalls(events)[0].stall
    assert (stall.cause, stall.tool) == ("tool", "run_shell_command")
    assert stall.cpu is not None and stall.cpu < 10
    assert [one.command for one in stall.children] == ["sleep 300"]
    assert f"pid {stall.pid}, no CPU, children: sleep 300 (pid " in stalls(events)[0].message
    assert not any(secret.encode() in encode_event(one) for one in events)


def test_processes_that_come_and_go(stand_in: Any) -> None:
    """A tool that starts and ends programs all the time, while it is looked at, breaks nothing."""
    body = (
        f"out(INIT + {TOOL % 'make'})\nchild = subprocess.Popen(['bash', '-c', 'while :; do /bin/true; done'])\n"
        "time.sleep(2)\nchild.kill()\nchild.wait()\nout(DONE)"
    )
    events = watched(stand_in(body, stall_after=0.2))
    assert {one.stall.cause for one in stalls(events)} == {"tool"}
    assert events[-1].outcome == "success"


def test_a_retry_that_stderr_tells(stand_in: Any) -> None:
    """Which attempt, of how many, after what, and when the next one comes; over when the CLI speaks again."""
    body = (
        "out(INIT)\nout('Attempt 3 failed: Quota. Retrying after 12000ms...\\n', 2)\n"
        "while not os.path.exists('told'): time.sleep(0.05)\n"
        "out(say('a'))\ntime.sleep(60)"
    )
    options = stand_in(body, stall_after=1, model="flash")
    events = watched(options, enough=2, told=Path(options.cwd, "told"))
    first, second = stalls(events)
    assert re.fullmatch(r"API retry 3 of 10 after HTTP 429, next in about (9|10|11) s", first.message)
    stall = first.stall
    assert (stall.cause, stall.attempt, stall.of, stall.http_status) == ("retry", 3, 10, 429)
    assert 8.5 < stall.next_s < 12
    assert second.stall.cause == "idle"


@pytest.mark.parametrize("after", [0.001, 10**8])
def test_any_number_of_seconds(stand_in: Any, after: float) -> None:
    """A tiny one asks for many words, and gets them without a core of its own; a huge one for none."""
    options = stand_in("out(INIT)\ntime.sleep(1.5)\nout(DONE)", stall_after=after)
    spent = time.process_time()
    events = watched(options)
    found = len(stalls(events))
    assert 0 < found < 20 if after < 1 else found == 0
    assert time.process_time() - spent < 1.5


@pytest.mark.anyio
async def test_nothing_is_left(stand_in: Any, anyio_backend: str) -> None:
    """On either event loop: words while it is silent, none after the end, and no task that looks on."""
    options = stand_in("out(INIT)\ntime.sleep(1.2)\nout(DONE)", stall_after=0.4)
    async with geminids.open_run("hi", options) as run:
        events = [event async for event in run]
    assert stalls(events)
    assert isinstance(events[-1], geminids.Finished)
    await anyio.sleep(1.2)
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    # A loop keeps its idle threads for the next call; none of ours is busy.
    assert [name for name in names if "geminids" in name] == []
