"""Failures of a run outside the CLI itself: before its start, in callbacks, and when the caller is
cancelled."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids import Finished, Notice, OptionsError, Text
from geminids.process.marker import MARKER
from geminids.process.tree import marked

HELLO = "out(INIT + say('hi') + DONE)"


@pytest.mark.anyio
async def test_a_run_that_is_stopped_before_its_start_spawns_nothing(fake_cli: Any) -> None:
    """A run that is stopped before it starts emits one `Finished` (interrupted), and no process is
    spawned."""
    options = fake_cli("open('ran', 'w')")
    run = geminids.open_run("hi", options)
    run.stop()
    async with run:
        events = [event async for event in run]
    assert [type(event) for event in events] == [Finished]
    assert run.result.outcome == "interrupted"
    assert not (Path(options.cwd) / "ran").exists()


@pytest.mark.anyio
async def test_a_removed_folder_is_named(fake_cli: Any) -> None:
    """If the working folder is removed before the start, the failure is `bad_option` and names the
    folder."""
    options = fake_cli(HELLO)
    run = geminids.open_run("hi", options)
    shutil.rmtree(options.cwd)
    async with run:
        pass
    failure = run.result.failure
    assert failure is not None
    assert (failure.kind, options.cwd in failure.message) == ("bad_option", True)


def test_an_environment_that_is_too_large_is_reported(fake_cli: Any) -> None:
    """An environment that is too large for a process is a `bad_option` failure, which is not
    retryable."""
    failure = geminids.ask_sync("hi", fake_cli(HELLO, env={"BIG": "x" * 3_000_000})).failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("bad_option", False)


def test_a_lone_surrogate_is_reported_before_the_spawn() -> None:
    """An option with a lone surrogate is refused before the spawn, because no process can receive
    it."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hi", model="a\ud800", env={"X": "b\ud800"})
    assert [name for name, _ in caught.value.problems] == ["model", "env"]


def test_a_callback_that_raises_does_not_fail_the_run(fake_cli: Any) -> None:
    """An `on_line` callback that raises is reported once; the run succeeds and leaks no file
    descriptor."""

    async def run_once() -> Any:
        def on_line(line: str, events: Sequence[Any]) -> None:
            raise ValueError("mine")

        async with geminids.open_run("hi", fake_cli(HELLO), on_line=on_line) as run:
            events = [event async for event in run]
        messages = [
            event.message for event in events if isinstance(event, Notice) and event.code == "on_line"
        ]
        return run.result.outcome, run.result.text, len(messages)

    assert anyio.run(run_once) == ("success", "hi", 1)
    before = psutil.Process().num_fds()
    assert anyio.run(run_once) == ("success", "hi", 1)
    assert psutil.Process().num_fds() <= before


def test_a_stderr_callback_that_raises_does_not_fail_the_run(fake_cli: Any, tmp_path: Path) -> None:
    """An `on_stderr` callback that raises is reported once, and is not called again."""
    calls: list[str] = []
    was_called = tmp_path / "called"

    async def run_once() -> Any:
        def on_stderr(text: str) -> None:
            calls.append(text)
            was_called.touch()
            raise ValueError("mine")

        wait = f"while not os.path.exists({str(was_called)!r}): time.sleep(0.01)\n"
        options = fake_cli(f"out('one\\n', 2)\n{wait}out('two\\n', 2)\n" + HELLO)
        async with geminids.open_run("hi", options, on_stderr=on_stderr) as run:
            events = [event async for event in run]
        codes = [event.code for event in events if isinstance(event, Notice)]
        return run.result.outcome, run.result.text, codes.count("on_stderr"), codes.count("stderr")

    assert anyio.run(run_once) == ("success", "hi", 1, 2)
    assert calls == ["one\n"]


@pytest.mark.anyio
async def test_a_slow_version_query_does_not_block_the_loop(fake_cli: Any) -> None:
    """Other tasks of the event loop continue while the CLI takes a second to print its version."""
    options = fake_cli(HELLO)
    script = Path(str(options.gemini))
    script.write_text(script.read_text().replace("import json", "import time; time.sleep(1)\nimport json", 1))
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = time.monotonic()
            await anyio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        assert (await geminids.ask("hi", options)).ok
        tasks.cancel_scope.cancel()
    assert longest < 0.8


@pytest.mark.deep
@pytest.mark.anyio
async def test_a_consumer_that_takes_a_second_for_each_event(fake_cli: Any, check_run: Any) -> None:
    """A consumer that takes a second for each event still receives every event."""
    events: list[Any] = []
    async with geminids.open_run("hi", fake_cli("out(INIT + say('a') + say('b') + say('c') + DONE)")) as run:
        async for event in run:
            events.append(event)
            await anyio.sleep(1)
    assert check_run(events).outcome == "success"
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "b", "c"]


def test_a_read_only_home_is_reported_at_once(fake_cli: Any, tmp_path: Path) -> None:
    """A home that cannot be written is a `config` failure before the spawn, because the CLI would
    hang without a message."""
    options = fake_cli(HELLO)
    assert geminids.ask_sync("hi", options).ok
    homes = tmp_path / "geminids" / "homes"
    (private,) = homes.glob("isolated-*")
    shutil.rmtree(private / ".gemini")
    (private / ".gemini").symlink_to("/proc/self/fdinfo")  # not even root can write to this folder
    failure = geminids.ask_sync("hi", options).failure
    assert failure is not None
    assert failure.kind == "config"
    assert os.environ["GEMINIDS_HOME"] in failure.hint


def test_a_caller_that_is_cancelled_at_the_start_leaves_no_process(fake_cli: Any) -> None:
    """If asyncio cancels the caller while the CLI's version is queried, the run spawns nothing
    afterwards."""
    options = fake_cli("open('ran', 'w')\ntime.sleep(60)")
    script, version_queried = Path(str(options.gemini)), Path(options.cwd) / "asked"
    slow_version = f"open({str(version_queried)!r}, 'w'); import time; time.sleep(1)\nimport json"
    script.write_text(script.read_text().replace("import json", slow_version, 1))

    async def enter() -> None:
        async with geminids.open_run("hi", options):
            raise AssertionError("the block was entered")

    async def cancel() -> None:
        task = asyncio.create_task(enter())
        while not version_queried.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    deadline = time.monotonic() + 10
    # The version query takes a second.
    while marked(os.environ[MARKER]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert marked(os.environ[MARKER]) == []
    assert not (Path(options.cwd) / "ran").exists()
