"""Shared fixtures of the run tests: checks that hold for every run, and limits for memory and
time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psutil
import pytest

import geminids
from geminids import Finished, Options, Started, Text, ToolFinished, ToolStarted

FakeCli = Callable[..., Options]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The name of an event loop: each async test runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture
def check_run() -> Callable[[Sequence[Any]], Finished]:
    """A function that checks the rules of every run and returns its `Finished` event."""

    def check(events: Sequence[Any]) -> Finished:
        assert [event.seq for event in events] == list(range(len(events)))
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert [type(event) for event in events].count(Finished) == 1
        assert [type(event) for event in events].count(Started) == 1
        assert "".join(event.text for event in events if isinstance(event, Text)) == finished.text
        started = [event.id for event in events if isinstance(event, ToolStarted)]
        assert sorted(started) == sorted(event.id for event in events if isinstance(event, ToolFinished))
        return finished

    return check


@pytest.fixture
def events_of(fake_cli: FakeCli, check_run: Callable[[Sequence[Any]], Finished]) -> Callable[..., list[Any]]:
    """A function that runs a Python body as the CLI and returns the checked events of the run."""

    def run(body: str, prompt: str = "hello", **fields: Any) -> list[Any]:
        events = list(geminids.stream_sync(prompt, fake_cli(body, **fields)))
        check_run(events)
        return events

    return run


@pytest.fixture
def memory_within() -> Callable[[float], AbstractContextManager[None]]:
    """A context manager: within its block this process may grow by at most so many megabytes."""

    @contextmanager
    def within(megabytes: float) -> Iterator[None]:
        process = psutil.Process()
        before = peak = process.memory_info().rss
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
        grown = (peak - before) / 1e6
        assert grown < megabytes, f"grew by {grown:.0f} MB"

    return within


@pytest.fixture
def seconds_within() -> Callable[[float], AbstractContextManager[None]]:
    """A context manager: its block must not take longer than so many seconds."""

    @contextmanager
    def within(seconds: float) -> Iterator[None]:
        start = time.monotonic()
        yield
        assert time.monotonic() - start < seconds

    return within
