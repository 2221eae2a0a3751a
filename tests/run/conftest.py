"""A stand-in for the CLI: a real process that writes what a test wants, run through the whole pipeline."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import geminids
from geminids import Finished, Options, Started, Text, ToolFinished, ToolStarted

StandIn = Callable[..., Options]

_HEAD = """\
#!{python} -IS
import json, os, subprocess, sys, time
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit()
def out(data, fd=1):
    view = memoryview(data.encode() if isinstance(data, str) else data)
    while view:
        view = view[os.write(fd, view):]
def line(kind, **fields):
    stamp = "2026-11-16T03:27:52.123Z"
    return json.dumps({{"type": kind, "timestamp": stamp, **fields}}, separators=(",", ":")) + "\\n"
def say(text):
    return line("message", role="assistant", content=text, delta=True)
INIT = line("init", session_id="s-1", model="auto") + line("message", role="user", content="hi")
DONE = line("result", status="success", stats=dict(total_tokens=3, input_tokens=1, output_tokens=2))
"""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    backend: str = request.param
    return backend


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Make a CLI out of a body of Python, with `out`, `line`, `say`, `INIT` and `DONE`; gives options for it."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    work = tmp_path / "work"
    work.mkdir()

    def make(body: str, **fields: Any) -> Options:
        script = tmp_path / f"gemini-{len(list(tmp_path.glob('gemini-*')))}"
        script.write_text(_HEAD.format(python=sys.executable) + body)
        script.chmod(0o755)
        given = {"gemini": str(script), "home": "isolated", "cwd": str(work), "grace": 1.0}
        return Options(**{**given, **fields})

    return make


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
