"""Streams that are long, wide or slow: memory stays flat and nothing hangs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids import Finished, Notice, Started, Text

# Warnings and not text, because a run keeps its whole text for the result.
ENDLESS = "out(INIT)\nwhile True: out(line('error', severity='warning', message='some words ' * 10) * 1000)"

# A separate program, so that its memory peak is its own. It measures the second run, because the
# first one loads modules. It prefers VmHWM: ru_maxrss starts with the value of the parent process.
MEASURED = """
import json, sys, threading
import anyio, psutil
import geminids
def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
async def main(script):
    count = 0
    options = geminids.Options(gemini=script, home="isolated", cwd=sys.argv[3])
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            assert event.seq == count
            count += 1
    assert isinstance(event, geminids.Finished)
    return count, run.result
anyio.run(main, sys.argv[1])
for thread in threading.enumerate():
    if thread.name == "geminids-prices":
        thread.join()  # it still loads the price list
before = psutil.Process().memory_info().rss
count, result = anyio.run(main, sys.argv[2])
after = psutil.Process().memory_info().rss
print(json.dumps([count, result.outcome, len(result.text), (peak() - before) / 1e6, (after - before) / 1e6]))
"""


@pytest.mark.parametrize("thousands", [100, pytest.param(1000, marks=pytest.mark.deep)])
def test_many_events_in_flat_memory(fake_cli: Any, thousands: int) -> None:
    """A million events need at most twenty megabytes beyond their text."""
    small = fake_cli("out(INIT + say('12345678') + DONE)")
    body = "out(INIT)\nfor _ in range(%d): out(say('12345678') * 1000)\nout(DONE)"
    big = fake_cli(body % thousands)
    argv = [sys.executable, "-c", MEASURED, small.gemini, big.gemini, big.cwd]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, outcome, length, peak, after = json.loads(done.stdout)
    assert (count, outcome, length) == (thousands * 1000 + 3, "success", thousands * 8000)
    assert peak < 20
    assert after < 20


@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_a_very_long_line(events_of: Any, memory_within: Any, seconds_within: Any, megabytes: int) -> None:
    """A very long line arrives complete, in linear time, with memory of a few times its size."""
    body = f"out(INIT); out(say('x' * {megabytes * 1_000_000})); out(DONE)"
    with memory_within(megabytes * 6 + 30), seconds_within(30):
        events = events_of(body)
    assert events[-1].outcome == "success"
    assert len(events[-1].text) == megabytes * 1_000_000


@pytest.mark.anyio
async def test_a_slow_consumer(fake_cli: Any, memory_within: Any) -> None:
    """Memory stays flat while an endless CLI writes and the consumer sleeps, and the timeout still
    applies."""
    with memory_within(40), anyio.fail_after(60):
        async with geminids.open_run("hi", fake_cli(ENDLESS, timeout=1.5, grace=0.3)) as run:
            count = 0
            async for event in run:
                assert event.seq == count
                count += 1
                if count <= 4:
                    await anyio.sleep(1)
    assert isinstance(event, Finished)
    assert event.outcome == "timed_out"
    assert event.duration_ms < 3500


def test_a_slow_consumer_without_async(fake_cli: Any, memory_within: Any) -> None:
    """Memory stays flat and the timeout applies while a consumer of `stream_sync` blocks its
    thread."""
    count = 0
    with memory_within(40):
        for event in geminids.stream_sync("hi", fake_cli(ENDLESS, timeout=1.0, grace=0.3)):
            assert event.seq == count
            count += 1
            if count <= 3:
                signal.sigtimedwait([], 1)
    assert isinstance(event, Finished)
    assert event.outcome == "timed_out"
    assert event.duration_ms < 3000


@pytest.mark.anyio
async def test_a_consumer_that_blocks_the_event_loop(fake_cli: Any, check_run: Any) -> None:
    """All output is read, even if the consumer blocks the event loop until after the CLI has
    ended."""
    options = fake_cli(
        "out(INIT + say('first')); time.sleep(0.2); out(say('x' * 300_000) * 2 + say('last') + DONE)"
    )
    events: list[Any] = []
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text) and event.text == "first":
                signal.sigtimedwait([], 1.5)
    finished = check_run(events)
    assert finished.outcome == "success"
    assert finished.text.endswith("last")


@pytest.mark.parametrize("result", [False, True])
def test_stdout_is_closed_but_the_process_runs(events_of: Any, seconds_within: Any, result: bool) -> None:
    """A CLI that closes stdout but does not exit is ended after two seconds.

    The run is cut off unless it reported a result.
    """
    body = f"out(INIT + say('Hello') + (DONE if {result} else '')); os.close(1); time.sleep(60)"
    with seconds_within(8):
        finished = events_of(body, grace=0.5)[-1]
    assert finished.text == "Hello"
    assert 1900 < finished.duration_ms < 6000
    if result:
        assert finished.outcome == "success"
    else:
        assert (finished.outcome, finished.failure.kind) == ("failed", "cut_off")
        # Not "was ended by SIGTERM": geminids sent that signal.
        assert "did not exit" in finished.reason
    assert [ended.signal for ended in finished.ended] == ["TERM"]


@pytest.mark.parametrize("status", ["success", "error"])
def test_a_cli_that_lingers_after_its_result(events_of: Any, seconds_within: Any, status: str) -> None:
    """A CLI that stays after its result is ended after two seconds, and the result counts."""
    error = "{'type': 'FatalInputError', 'message': 'no'}"
    body = f"out(INIT + say('Hello') + line('result', status={status!r}, error={error})); time.sleep(60)"
    with seconds_within(8):
        finished = events_of(body, grace=0.5)[-1]
    assert 1900 < finished.duration_ms < 6000
    assert finished.outcome == ("success" if status == "success" else "failed")


@pytest.mark.parametrize("leftovers", ["end", "keep"])
def test_a_grandchild_holds_stdout_open(events_of: Any, seconds_within: Any, leftovers: str) -> None:
    """The run ends with the CLI, even if another process holds its stdout open."""
    body = """
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
out(INIT + say(str(child.pid)) + DONE)
"""
    with seconds_within(8):
        finished = events_of(body, leftovers=leftovers)[-1]
    assert finished.outcome == "success"
    if leftovers == "end":
        assert [str(ended.pid) for ended in finished.ended] == [finished.text]
    else:
        assert finished.ended == ()
        kept = psutil.Process(int(finished.text))
        kept.kill()
        kept.wait(10)


def test_a_prompt_that_is_never_read(events_of: Any, seconds_within: Any) -> None:
    """A CLI that ends without reading its five megabytes of stdin still gives a normal result."""
    with seconds_within(20):
        events = events_of("out(INIT + say('Hello') + DONE)", prompt="é" * 2_500_000)
    assert (events[-1].outcome, events[-1].text) == ("success", "Hello")


def test_the_answer_is_read_while_the_prompt_is_written(events_of: Any, seconds_within: Any) -> None:
    """The answer of a CLI that never reads its stdin is read while the prompt is still being
    written."""
    with seconds_within(20):
        events = events_of("out(INIT + say('Hello')); time.sleep(0.5); out(DONE)", prompt="é" * 2_500_000)
    assert (events[-1].outcome, events[-1].text) == ("success", "Hello")


def test_a_long_prompt_arrives_complete(events_of: Any) -> None:
    """The CLI receives a prompt of five megabytes complete."""
    body = "data = sys.stdin.buffer.read(); out(INIT + say(f'{len(data)} {data[-3:]}') + DONE)"
    assert events_of(body, prompt="é" * 2_500_000 + "end")[-1].text == "5000003 b'end'"


def test_many_odd_lines(events_of: Any, seconds_within: Any) -> None:
    """A flood of noise is reported line by line within seconds."""
    with seconds_within(30):
        events = events_of("out(INIT + 'noise\\n' * 50_000 + say('Hello') + DONE)")
    assert sum(isinstance(event, Notice) and event.code != "session" for event in events) == 50_000
    assert isinstance(events[0], Started)
