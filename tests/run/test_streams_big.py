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

# Warnings, not text: the text of a run is held for its result, however long it is.
ENDLESS = "out(INIT)\nwhile True: out(line('error', severity='warning', message='some words ' * 10) * 1000)"

# A program of its own: its peak is its own. What a first run loads is no growth. The peak is VmHWM where there
# is one: ru_maxrss of a process begins with that of whoever forked it.
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
        thread.join()  # it loads what a first run loads
before = psutil.Process().memory_info().rss
count, result = anyio.run(main, sys.argv[2])
after = psutil.Process().memory_info().rss
print(json.dumps([count, result.outcome, len(result.text), (peak() - before) / 1e6, (after - before) / 1e6]))
"""


@pytest.mark.parametrize("thousands", [100, pytest.param(1000, marks=pytest.mark.deep)])
def test_many_events_in_flat_memory(stand_in: Any, thousands: int) -> None:
    """A million events take the text that they are and at most twenty megabytes."""
    small = stand_in("out(INIT + say('12345678') + DONE)")
    body = "out(INIT)\nfor _ in range(%d): out(say('12345678') * 1000)\nout(DONE)"
    big = stand_in(body % thousands)
    argv = [sys.executable, "-c", MEASURED, small.gemini, big.gemini, big.cwd]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, outcome, length, peak, after = json.loads(done.stdout)
    assert (count, outcome, length) == (thousands * 1000 + 3, "success", thousands * 8000)
    assert peak < 20
    assert after < 20


@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_a_very_long_line(events_of: Any, memory_within: Any, seconds_within: Any, megabytes: int) -> None:
    """Arrives whole, in linear time, and costs a few times its size."""
    body = f"out(INIT); out(say('x' * {megabytes * 1_000_000})); out(DONE)"
    with memory_within(megabytes * 6 + 30), seconds_within(30):
        events = events_of(body)
    assert events[-1].outcome == "success"
    assert len(events[-1].text) == megabytes * 1_000_000


@pytest.mark.anyio
async def test_a_slow_consumer(stand_in: Any, memory_within: Any) -> None:
    """Memory stays flat under a CLI that never stops writing, and the deadline holds though the consumer sleeps."""
    with memory_within(40), anyio.fail_after(60):
        async with geminids.open_run("hi", stand_in(ENDLESS, timeout=1.5, grace=0.3)) as run:
            count = 0
            async for event in run:
                assert event.seq == count
                count += 1
                if count <= 4:
                    await anyio.sleep(1)
    assert isinstance(event, Finished)
    assert event.outcome == "timed_out"
    assert event.duration_ms < 3500


def test_a_slow_consumer_without_async(stand_in: Any, memory_within: Any) -> None:
    """The same where the consumer blocks its thread."""
    count = 0
    with memory_within(40):
        for event in geminids.stream_sync("hi", stand_in(ENDLESS, timeout=1.0, grace=0.3)):
            assert event.seq == count
            count += 1
            if count <= 3:
                signal.sigtimedwait([], 1)
    assert isinstance(event, Finished)
    assert event.outcome == "timed_out"
    assert event.duration_ms < 3000


@pytest.mark.anyio
async def test_a_consumer_that_blocks_the_event_loop(stand_in: Any, checked: Any) -> None:
    """What the CLI wrote before it ended is read, however late its readers come."""
    options = stand_in(
        "out(INIT + say('first')); time.sleep(0.2); out(say('x' * 300_000) * 2 + say('last') + DONE)"
    )
    events: list[Any] = []
    async with geminids.open_run("hi", options) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text) and event.text == "first":
                signal.sigtimedwait([], 1.5)
    finished = checked(events)
    assert finished.outcome == "success"
    assert finished.text.endswith("last")


@pytest.mark.parametrize("result", [False, True])
def test_stdout_is_closed_but_the_process_lives_on(events_of: Any, seconds_within: Any, result: bool) -> None:
    """It is ended after two seconds; cut off, unless it had said success."""
    body = f"out(INIT + say('Hello') + (DONE if {result} else '')); os.close(1); time.sleep(60)"
    with seconds_within(8):
        finished = events_of(body, grace=0.5)[-1]
    assert finished.text == "Hello"
    assert 1900 < finished.duration_ms < 6000
    if result:
        assert finished.outcome == "success"
    else:
        assert (finished.outcome, finished.failure.kind) == ("failed", "cut_off")
        assert "did not exit" in finished.reason  # not "was ended by SIGTERM": that was us
    assert [ended.signal for ended in finished.ended] == ["TERM"]


@pytest.mark.parametrize("status", ["success", "error"])
def test_a_cli_that_lingers_after_its_result(events_of: Any, seconds_within: Any, status: str) -> None:
    """Is ended after two seconds, and the result holds."""
    error = "{'type': 'FatalInputError', 'message': 'no'}"
    body = f"out(INIT + say('Hello') + line('result', status={status!r}, error={error})); time.sleep(60)"
    with seconds_within(8):
        finished = events_of(body, grace=0.5)[-1]
    assert 1900 < finished.duration_ms < 6000
    assert finished.outcome == ("success" if status == "success" else "failed")


@pytest.mark.parametrize("leftovers", ["end", "keep"])
def test_a_grandchild_holds_stdout_open(events_of: Any, seconds_within: Any, leftovers: str) -> None:
    """The end of the CLI is the end of the run, whoever still holds its pipes."""
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
    """A CLI that ends without reading five megabytes of stdin ends the run as it would have."""
    with seconds_within(20):
        events = events_of("out(INIT + say('Hello') + DONE)", prompt="é" * 2_500_000)
    assert (events[-1].outcome, events[-1].text) == ("success", "Hello")


def test_a_prompt_that_is_never_read_by_a_cli_that_works_on(events_of: Any, seconds_within: Any) -> None:
    """Its answer is read while the prompt still waits."""
    with seconds_within(20):
        events = events_of("out(INIT + say('Hello')); time.sleep(0.5); out(DONE)", prompt="é" * 2_500_000)
    assert (events[-1].outcome, events[-1].text) == ("success", "Hello")


def test_a_long_prompt_arrives_whole(events_of: Any) -> None:
    """Five megabytes, to the last byte."""
    body = "data = sys.stdin.buffer.read(); out(INIT + say(f'{len(data)} {data[-3:]}') + DONE)"
    assert events_of(body, prompt="é" * 2_500_000 + "end")[-1].text == "5000003 b'end'"


def test_many_odd_lines(events_of: Any, seconds_within: Any) -> None:
    """A flood of noise is told line by line, and takes no more than seconds."""
    with seconds_within(30):
        events = events_of("out(INIT + 'noise\\n' * 50_000 + say('Hello') + DONE)")
    assert sum(isinstance(event, Notice) and event.code != "session" for event in events) == 50_000
    assert isinstance(events[0], Started)
