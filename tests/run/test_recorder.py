"""The queue of events: every batch, once, in order, and no more memory than a few megabytes."""

from __future__ import annotations

import os
from typing import Any

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given

from geminids.events.model import Event
from geminids.events.numbering import EventNumbers
from geminids.run.recorder import EventQueue

MEGABYTE = 1024 * 1024


def _all(puts: list[tuple[int, int, int]]) -> None:
    """Put and take as told; in the end everything has come out as it went in."""
    queue, recorder = EventQueue(), EventNumbers()
    expected: list[Event] = []
    found: list[Event] = []

    async def take(most: int) -> None:
        while most and (queue._batches or queue._file or queue._overflow):
            found.extend(await queue.take() or ())
            most -= 1

    async def play() -> None:
        for events, size, taken in puts:
            batch = [recorder.notice("info", "noise", "x") for _ in range(events)]
            expected.extend(batch)
            queue.put(batch, size)
            await take(taken)
        queue.close()
        await take(10**9)
        assert await queue.take() is None

    anyio.run(play)
    assert found == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * MEGABYTE), st.integers(0, 3)), max_size=30))
def test_any_order_of_putting_and_taking_keeps_the_order(puts: list[tuple[int, int, int]]) -> None:
    """Whether a batch waits in memory or on disk cannot be told from what comes out."""
    _all(puts)


def test_a_full_disk_costs_memory_and_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written stays in memory, behind what was written before."""
    real, calls = os.pwrite, 0

    def full(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise OSError(28, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    _all([(3, 3 * MEGABYTE, 0)] * 8)
    assert calls > 2
