"""The edges of a run: what goes wrong before, beside and after the CLI."""

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
async def test_a_run_that_is_stopped_before_it_begins_spawns_nothing(stand_in: Any) -> None:
    """It is interrupted, and says so once."""
    options = stand_in("open('ran', 'w')")
    run = geminids.open_run("hi", options)
    run.stop()
    async with run:
        events = [event async for event in run]
    assert [type(event) for event in events] == [Finished]
    assert run.result.outcome == "interrupted"
    assert not (Path(options.cwd) / "ran").exists()


@pytest.mark.anyio
async def test_a_folder_that_goes_away_is_not_a_missing_cli(stand_in: Any) -> None:
    """The failure names the folder."""
    options = stand_in(HELLO)
    run = geminids.open_run("hi", options)
    shutil.rmtree(options.cwd)
    async with run:
        pass
    failure = run.result.failure
    assert failure is not None
    assert (failure.kind, options.cwd in failure.message) == ("bad_option", True)


def test_an_environment_that_is_too_large_is_told(stand_in: Any) -> None:
    """Not a crash that a retry could mend."""
    failure = geminids.ask_sync("hi", stand_in(HELLO, env={"BIG": "x" * 3_000_000})).failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("bad_option", False)


def test_half_a_character_is_told_before_anything_is_spawned() -> None:
    """A lone surrogate cannot be handed to a process."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hi", model="a\ud800", env={"X": "b\ud800"})
    assert [name for name, _ in caught.value.problems] == ["model", "env"]


def test_a_callback_that_raises_costs_nothing(stand_in: Any) -> None:
    """It is told once and not called again; the run goes on, and no file stays open."""

    async def once() -> Any:
        def on_line(line: str, events: Sequence[Any]) -> None:
            raise ValueError("mine")

        async with geminids.open_run("hi", stand_in(HELLO), on_line=on_line) as run:
            events = [event async for event in run]
        told = [event.message for event in events if isinstance(event, Notice) and event.code == "on_line"]
        return run.result.outcome, run.result.text, len(told)

    assert anyio.run(once) == ("success", "hi", 1)
    before = psutil.Process().num_fds()
    assert anyio.run(once) == ("success", "hi", 1)
    assert psutil.Process().num_fds() <= before


@pytest.mark.anyio
async def test_a_cli_that_is_slow_to_tell_its_version_does_not_block_the_loop(stand_in: Any) -> None:
    """Others on the same event loop go on."""
    options = stand_in(HELLO)
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
async def test_a_second_for_each_event(stand_in: Any, checked: Any) -> None:
    """A consumer that is slow all the way has everything in the end."""
    events: list[Any] = []
    async with geminids.open_run("hi", stand_in("out(INIT + say('a') + say('b') + say('c') + DONE)")) as run:
        async for event in run:
            events.append(event)
            await anyio.sleep(1)
    assert checked(events).outcome == "success"
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "b", "c"]


def test_a_read_only_home_is_told_at_once(stand_in: Any, tmp_path: Path) -> None:
    """The CLI would hang in silence: the home's folder is tried before it is spawned."""
    options = stand_in(HELLO)
    assert geminids.ask_sync("hi", options).ok
    homes = tmp_path / "geminids" / "homes"
    (private,) = homes.glob("isolated-*")
    shutil.rmtree(private / ".gemini")
    (private / ".gemini").symlink_to("/proc/self/fdinfo")  # a folder that nobody can write to, root included
    failure = geminids.ask_sync("hi", options).failure
    assert failure is not None
    assert failure.kind == "config"
    assert os.environ["GEMINIDS_HOME"] in failure.hint


def test_a_caller_who_is_cancelled_on_the_way_in_leaves_nothing(stand_in: Any) -> None:
    """asyncio's own cancel, while the CLI is still asked for its version: nothing is spawned afterwards."""
    options = stand_in("open('ran', 'w')\ntime.sleep(60)")
    script, asked = Path(str(options.gemini)), Path(options.cwd) / "asked"
    slow = f"open({str(asked)!r}, 'w'); import time; time.sleep(1)\nimport json"
    script.write_text(script.read_text().replace("import json", slow, 1))

    async def enter() -> None:
        async with geminids.open_run("hi", options):
            raise AssertionError("it was entered")

    async def cancel() -> None:
        task = asyncio.create_task(enter())
        while not asked.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    until = time.monotonic() + 10
    while marked(os.environ[MARKER]) and time.monotonic() < until:  # the question itself takes its second
        time.sleep(0.02)
    assert marked(os.environ[MARKER]) == []
    assert not (Path(options.cwd) / "ran").exists()
