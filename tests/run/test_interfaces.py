"""The ways into a run: async on both event loops, sync anywhere, and out of it again."""

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


def _gone(run: geminids.Run) -> bool:
    assert run.pid is not None
    return not psutil.pid_exists(run.pid)


@pytest.mark.anyio
async def test_events_and_result(stand_in: Any, checked: Any) -> None:
    """The block gives events; the result is there afterwards and says what `Finished` said."""
    events = []
    async with geminids.open_run("hi", stand_in(HELLO)) as run:
        events = [event async for event in run]
    finished = checked(events)
    assert (run.result.ok, run.result.answer, run.result.run_id) == (True, "Hello", finished.run_id)
    assert run.id == finished.run_id


@pytest.mark.anyio
async def test_iterating_again_goes_on(stand_in: Any, checked: Any) -> None:
    """Who breaks out of the loop and begins another one loses no event."""
    events = []
    async with geminids.open_run("hi", stand_in(HELLO)) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text):
                break
        events += [event async for event in run]
    assert checked(events).text == "Hello"


@pytest.mark.anyio
async def test_ask(stand_in: Any) -> None:
    """One question, one result; fields of `Options` go over those given."""
    result = await geminids.ask("hi", stand_in(HELLO), model="flash")
    assert result.answer == "Hello"


@pytest.mark.anyio
async def test_two_runs_at_once(stand_in: Any) -> None:
    """Side by side in one event loop."""
    options = stand_in("time.sleep(0.2); " + HELLO)
    results = []

    async def one() -> None:
        results.append(await geminids.ask("hi", options))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    assert [result.answer for result in results] == ["Hello"] * 4


@pytest.mark.anyio
async def test_leaving_the_block_ends_the_run(stand_in: Any) -> None:
    """Nothing of it is left, and the result says that it was interrupted."""
    async with geminids.open_run("hi", stand_in(FOREVER)) as run:
        async for event in run:
            if isinstance(event, Text):
                break
    assert (run.result.outcome, run.result.text) == ("interrupted", "first")
    assert _gone(run)


@pytest.mark.anyio
async def test_a_cancelled_consumer_finds_the_result(stand_in: Any) -> None:
    """Cancelled from outside, the run is ended before the block is left."""
    with anyio.move_on_after(0.7) as scope:
        async with geminids.open_run("hi", stand_in(FOREVER)) as run:
            async for _ in run:
                pass
    assert scope.cancelled_caught
    assert run.result.outcome == "interrupted"
    assert _gone(run)


@pytest.mark.anyio
async def test_an_error_in_the_block_comes_out_as_it_is(stand_in: Any) -> None:
    """Not wrapped in a group."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with geminids.open_run("hi", stand_in(FOREVER)) as run:
            async for _ in run:
                1 / 0  # noqa: B018
    assert run.result.outcome == "interrupted"
    assert _gone(run)


@pytest.mark.anyio
async def test_stop(stand_in: Any, checked: Any) -> None:
    """A run that is asked to end ends, and the events say so."""
    events = []
    async with geminids.open_run("hi", stand_in(FOREVER)) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text):
                run.stop()
    assert checked(events).outcome == "interrupted"


@pytest.mark.anyio
async def test_no_result_before_the_end(stand_in: Any) -> None:
    """Asking for it too early is an error that says what to do."""
    run = geminids.open_run("hi", stand_in(FOREVER))
    with pytest.raises(GeminidsError, match="not ended yet"):
        _ = run.result
    async with run:
        with pytest.raises(GeminidsError, match="not ended yet"):
            _ = run.result
    assert run.result.outcome == "interrupted"


@pytest.mark.anyio
async def test_a_run_that_cannot_start_has_its_end(stand_in: Any, tmp_path: Any) -> None:
    """One `Finished`, and no exception."""
    options = stand_in(HELLO, gemini=str(tmp_path / "nothing-here"))
    async with geminids.open_run("hi", options) as run:
        events = [event async for event in run]
    (finished,) = events
    assert isinstance(finished, Finished)
    assert run.result.failure is not None
    assert run.result.failure.kind == "cli_missing"


def test_ask_sync_inside_a_running_loop(stand_in: Any) -> None:
    """As in a notebook."""

    async def cell() -> str:
        return geminids.ask_sync("hi", stand_in(HELLO)).answer

    assert asyncio.run(cell()) == "Hello"


def test_ask_sync_from_four_threads(stand_in: Any) -> None:
    """At once, and none disturbs the others."""
    options = stand_in("time.sleep(0.2); " + HELLO)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: geminids.ask_sync("hi", options), range(8)))
    assert [result.answer for result in results] == ["Hello"] * 8


def test_breaking_out_of_stream_sync_ends_the_run(stand_in: Any) -> None:
    """When the iterator is closed, its processes are gone."""
    events = geminids.stream_sync("hi", stand_in(FOREVER))
    for event in events:
        if isinstance(event, Started):
            pid = event.pid
        if isinstance(event, Text):
            break
    events.close()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(pid)


def test_stream_sync_spawns_nothing_before_it_is_read(stand_in: Any, tmp_path: Any) -> None:
    """But bad options are told at once."""
    geminids.stream_sync("hi", stand_in("open('spawned', 'w'); " + HELLO))
    assert not (tmp_path / "work" / "spawned").exists()
    with pytest.raises(OptionsError):
        geminids.stream_sync("hi", timeout=-1)


def test_every_bad_option_is_told_before_anything_is_spawned(stand_in: Any, tmp_path: Any) -> None:
    """All at once, each by its name."""
    options = stand_in("open('spawned', 'w'); " + HELLO)
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


def test_an_unknown_option_is_told_with_a_suggestion() -> None:
    """Together with the bad ones."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hi", timeoutt=3, grace=-1, zzz=1)
    problems = dict(caught.value.problems)
    assert problems["timeoutt"].endswith("did you mean timeout?")
    assert problems["zzz"] == "there is no such option"
    assert "grace" in problems


def test_a_run_outlives_the_thread_that_started_it(stand_in: Any, checked: Any) -> None:
    """The CLI is not tied to the spawning thread, as it would be by PDEATHSIG."""
    run = geminids.open_run("hi", stand_in("out(INIT + say('Hel')); time.sleep(0.6); out(say('lo') + DONE)"))
    starter = threading.Thread(target=run.launch)
    starter.start()
    starter.join()
    time.sleep(0.3)

    async def drive() -> list[Any]:
        async with run:
            return [event async for event in run]

    assert checked(anyio.run(drive)).text == "Hello"


def test_a_result_is_shown_in_short(stand_in: Any) -> None:
    """Megabytes of text are not formatted: asyncio.run does that to whatever its task returned."""
    result = geminids.ask_sync("hi", stand_in("out(INIT + say('x' * 100_000) + DONE)"))
    assert "(100000 characters)" in repr(result)
    assert len(repr(result)) < 3000
