"""What the tests of the lane share: the laws that every run keeps, and a look at memory."""

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

StandIn = Callable[..., Options]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    backend: str = request.param
    return backend


@pytest.fixture
def checked() -> Callable[[Sequence[Any]], Finished]:
    """Check the laws that every run keeps; gives its `Finished`."""

    def check(events: Sequence[Any]) -> Finished:
        assert [event.seq for event in events] == list(range(len(events)))
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert [type(event) for event in events].count(Finished) == 1
        assert [type(event) for event in events].count(Started) == 1
        assert "".join(event.text for event in events if isinstance(event, Text)) == finished.text
        begun = [event.id for event in events if isinstance(event, ToolStarted)]
        assert sorted(begun) == sorted(event.id for event in events if isinstance(event, ToolFinished))
        return finished

    return check


@pytest.fixture
def events_of(stand_in: StandIn, checked: Callable[[Sequence[Any]], Finished]) -> Callable[..., list[Any]]:
    """Run a body of Python as the CLI, to its end; gives the events, whose laws are checked."""

    def run(body: str, prompt: str = "hello", **fields: Any) -> list[Any]:
        events = list(geminids.stream_sync(prompt, stand_in(body, **fields)))
        checked(events)
        return events

    return run


@pytest.fixture
def memory_within() -> Callable[[float], AbstractContextManager[None]]:
    """Within the block, this process may grow by so many megabytes at its peak."""

    @contextmanager
    def within(megabytes: float) -> Iterator[None]:
        process = psutil.Process()
        before = peak = process.memory_info().rss
        over = threading.Event()

        def look() -> None:
            nonlocal peak
            while not over.wait(0.01):
                peak = max(peak, process.memory_info().rss)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()
        grown = (peak - before) / 1e6
        assert grown < megabytes, f"grew by {grown:.0f} MB"

    return within


@pytest.fixture
def seconds_within() -> Callable[[float], AbstractContextManager[None]]:
    """The block takes no longer than that."""

    @contextmanager
    def within(seconds: float) -> Iterator[None]:
        began = time.monotonic()
        yield
        assert time.monotonic() - began < seconds

    return within
