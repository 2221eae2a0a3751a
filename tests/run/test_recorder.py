"""Tests of `EventQueue`: it returns every event once and in order, and holds only a few megabytes
in memory."""

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


def _check_queue(puts: list[tuple[int, int, int]]) -> None:
    """Put and take batches in the given order, and check that all events come out in order."""
    queue, recorder = EventQueue(), EventNumbers()
    expected: list[Event] = []
    taken_events: list[Event] = []

    async def take(limit: int) -> None:
        while limit and (queue._batches or queue._file or queue._overflow):
            taken_events.extend(await queue.take() or ())
            limit -= 1

    async def put_and_take() -> None:
        for events, size, taken in puts:
            batch = [recorder.notice("info", "noise", "x") for _ in range(events)]
            expected.extend(batch)
            queue.put(batch, size)
            await take(taken)
        queue.close()
        await take(10**9)
        assert await queue.take() is None

    anyio.run(put_and_take)
    assert taken_events == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * MEGABYTE), st.integers(0, 3)), max_size=30))
def test_events_come_out_in_order(puts: list[tuple[int, int, int]]) -> None:
    """Events come out in order, also if some batches were written to disk, for any sequence of puts
    and takes."""
    _check_queue(puts)


def test_a_full_disk_loses_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, further batches stay in memory, and no event is lost."""
    real_pwrite, calls = os.pwrite, 0

    def fail_after_two(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise OSError(28, "No space left on device")
        return real_pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", fail_after_two)
    _check_queue([(3, 3 * MEGABYTE, 0)] * 8)
    assert calls > 2
