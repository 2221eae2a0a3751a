"""The public functions that start a run, async on both event loops and sync, and the ways to end
it."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids import Finished, GeminidsError, OptionsError, Started, Text

HELLO = "out(INIT + say('Hel') + say('lo') + DONE)"
FOREVER = "out(INIT + say('first')); time.sleep(60)"


def _has_ended(run: geminids.Run) -> bool:
    assert run.pid is not None
    return not psutil.pid_exists(run.pid)


@pytest.mark.anyio
async def test_events_and_result(fake_cli: Any, check_run: Any) -> None:
    """A run yields its events, and afterwards its result agrees with its `Finished` event."""
    events = []
    async with geminids.open_run("hi", fake_cli(HELLO)) as run:
        events = [event async for event in run]
    finished = check_run(events)
    assert (run.result.ok, run.result.answer, run.result.run_id) == (True, "Hello", finished.run_id)
    assert run.id == finished.run_id


@pytest.mark.anyio
async def test_a_second_loop_continues(fake_cli: Any, check_run: Any) -> None:
    """A second loop over the events continues where the first one stopped."""
    events = []
    async with geminids.open_run("hi", fake_cli(HELLO)) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text):
                break
        events += [event async for event in run]
    assert check_run(events).text == "Hello"


@pytest.mark.anyio
async def test_ask(fake_cli: Any) -> None:
    """`ask` returns the result; keyword arguments replace fields of the options."""
    result = await geminids.ask("hi", fake_cli(HELLO), model="flash")
    assert result.answer == "Hello"


@pytest.mark.anyio
async def test_runs_work_in_parallel(fake_cli: Any) -> None:
    """Four runs work side by side in one event loop."""
    options = fake_cli("time.sleep(0.2); " + HELLO)
    results = []

    async def ask_once() -> None:
        results.append(await geminids.ask("hi", options))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask_once)
    assert [result.answer for result in results] == ["Hello"] * 4


@pytest.mark.anyio
async def test_leaving_the_block_ends_the_run(fake_cli: Any) -> None:
    """Leaving the `async with` block early ends the CLI, and the result is `interrupted` with the
    text so far."""
    async with geminids.open_run("hi", fake_cli(FOREVER)) as run:
        async for event in run:
            if isinstance(event, Text):
                break
    assert (run.result.outcome, run.result.text) == ("interrupted", "first")
    assert _has_ended(run)


@pytest.mark.anyio
async def test_a_cancelled_run_has_a_result(fake_cli: Any) -> None:
    """If the consumer is cancelled, the run has ended and has a result when the block is left."""
    with anyio.move_on_after(0.7) as scope:
        async with geminids.open_run("hi", fake_cli(FOREVER)) as run:
            async for _ in run:
                pass
    assert scope.cancelled_caught
    assert run.result.outcome == "interrupted"
    assert _has_ended(run)


@pytest.mark.anyio
async def test_an_error_in_the_block_is_raised_unchanged(fake_cli: Any) -> None:
    """An error in the block is raised unchanged, not wrapped in an exception group, and ends the
    run."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with geminids.open_run("hi", fake_cli(FOREVER)) as run:
            async for _ in run:
                1 / 0  # noqa: B018
    assert run.result.outcome == "interrupted"
    assert _has_ended(run)


@pytest.mark.anyio
async def test_stop(fake_cli: Any, check_run: Any) -> None:
    """`stop` ends the run, and its last event is `Finished` with the outcome `interrupted`."""
    events = []
    async with geminids.open_run("hi", fake_cli(FOREVER)) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text):
                run.stop()
    assert check_run(events).outcome == "interrupted"


@pytest.mark.anyio
async def test_no_result_before_the_end(fake_cli: Any) -> None:
    """Reading `result` before the end raises an error that says that the run has not ended."""
    run = geminids.open_run("hi", fake_cli(FOREVER))
    with pytest.raises(GeminidsError, match="not ended yet"):
        _ = run.result
    async with run:
        with pytest.raises(GeminidsError, match="not ended yet"):
            _ = run.result
    assert run.result.outcome == "interrupted"


@pytest.mark.anyio
async def test_a_run_that_cannot_start_has_a_result(fake_cli: Any, tmp_path: Any) -> None:
    """A run whose CLI does not exist emits one `Finished` with a failure and raises nothing."""
    options = fake_cli(HELLO, gemini=str(tmp_path / "nothing-here"))
    async with geminids.open_run("hi", options) as run:
        events = [event async for event in run]
    (finished,) = events
    assert isinstance(finished, Finished)
    assert run.result.failure is not None
    assert run.result.failure.kind == "cli_missing"


def test_ask_sync_inside_a_running_loop(fake_cli: Any) -> None:
    """`ask_sync` works inside a running event loop, as in a notebook."""

    async def cell() -> str:
        return geminids.ask_sync("hi", fake_cli(HELLO)).answer

    assert asyncio.run(cell()) == "Hello"


def test_ask_sync_from_four_threads(fake_cli: Any) -> None:
    """`ask_sync` works in four threads at once."""
    options = fake_cli("time.sleep(0.2); " + HELLO)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: geminids.ask_sync("hi", options), range(8)))
    assert [result.answer for result in results] == ["Hello"] * 8


def test_breaking_out_of_stream_sync_ends_the_run(fake_cli: Any) -> None:
    """Closing the iterator of `stream_sync` ends the CLI."""
    events = geminids.stream_sync("hi", fake_cli(FOREVER))
    for event in events:
        if isinstance(event, Started):
            pid = event.pid
        if isinstance(event, Text):
            break
    events.close()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(pid)


def test_stream_sync_spawns_nothing_before_it_is_read(fake_cli: Any, tmp_path: Any) -> None:
    """`stream_sync` spawns nothing before its first event is read, but refuses bad options at
    once."""
    geminids.stream_sync("hi", fake_cli("open('spawned', 'w'); " + HELLO))
    assert not (tmp_path / "work" / "spawned").exists()
    with pytest.raises(OptionsError):
        geminids.stream_sync("hi", timeout=-1)


def test_every_bad_option_is_reported_before_the_spawn(fake_cli: Any, tmp_path: Any) -> None:
    """All bad options are reported together, each by its name."""
    options = fake_cli("open('spawned', 'w'); " + HELLO)
    with pytest.raises(OptionsError) as caught:
        geminids.ask_sync(
            "hi",
            options,
            timeout=-1,
            grace="soon",
            model="two words",
            approval="maybe",
            line_limit=1,
            env={"A": 1},
            resume="a/b",
            offline="no",
        )
    names = [name for name, _ in caught.value.problems]
    assert sorted(names) == sorted(
        ["timeout", "grace", "model", "approval", "line_limit", "env", "resume", "offline"]
    )
    assert all(name in str(caught.value) for name in names)
    assert not (tmp_path / "work" / "spawned").exists()


def test_an_unknown_option_is_reported_with_a_suggestion() -> None:
    """An unknown option is reported with a suggestion if one is similar, together with the invalid
    ones."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hi", timeoutt=3, grace=-1, zzz=1)
    problems = dict(caught.value.problems)
    assert problems["timeoutt"].endswith("did you mean timeout?")
    assert problems["zzz"] == "there is no such option"
    assert "grace" in problems


def test_a_run_outlives_the_thread_that_started_it(fake_cli: Any, check_run: Any) -> None:
    """The CLI survives the end of the thread that spawned it; with PDEATHSIG it would be killed."""
    run = geminids.open_run("hi", fake_cli("out(INIT + say('Hel')); time.sleep(0.6); out(say('lo') + DONE)"))
    starter = threading.Thread(target=run.launch)
    starter.start()
    starter.join()
    time.sleep(0.3)

    async def drive() -> list[Any]:
        async with run:
            return [event async for event in run]

    assert check_run(anyio.run(drive)).text == "Hello"


def test_the_repr_of_a_result_is_short(fake_cli: Any) -> None:
    """The `repr` of a result is short even with megabytes of text: asyncio.run formats the value
    that its task returns."""
    result = geminids.ask_sync("hi", fake_cli("out(INIT + say('x' * 100_000) + DONE)"))
    assert "(100000 characters)" in repr(result)
    assert len(repr(result)) < 3000
