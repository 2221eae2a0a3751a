"""Tests of `LineFramer` with any bytes in any pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.process.line_framer import LineFramer

_BYTES = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"a", b"{}", b"\x00", b"\xff", b"long" * 5]), max_size=60
).map(b"".join)
_CUTS = st.lists(st.integers(0, 400), max_size=40)


def _feed_in_pieces(framer: LineFramer, data: bytes, cuts: list[int]) -> bytes:
    start = 0
    blocks = []
    for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        blocks.append(framer.feed(data[start:cut]))
        start = cut
    return b"".join([*blocks, framer.rest()])


@given(_BYTES, _CUTS)
def test_no_byte_is_lost(data: bytes, cuts: list[int]) -> None:
    """For any pieces, all blocks and the rest together equal the stream, and every block ends with
    a newline."""
    framer = LineFramer()
    start = 0
    blocks = []
    for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        blocks.append(framer.feed(data[start:cut]))
        start = cut
    assert all(block == b"" or block.endswith(b"\n") for block in blocks)
    rest = framer.rest()
    assert b"\n" not in rest
    assert b"".join([*blocks, rest]) == data
    assert framer.dropped == []


@given(_BYTES, _CUTS, st.integers(1, 30))
def test_long_lines_are_dropped(data: bytes, cuts: list[int], limit: int) -> None:
    """For any pieces, a line over `limit` bytes is dropped and its size recorded.

    All other lines stay in order.
    """
    framer = LineFramer(limit)
    lines = data.split(b"\n")
    kept = [line + b"\n" for line in lines[:-1] if len(line) <= limit] + [
        line for line in lines[-1:] if len(line) <= limit
    ]
    assert _feed_in_pieces(framer, data, cuts) == b"".join(kept)
    assert framer.dropped == [len(line) for line in lines if len(line) > limit]


def test_a_dropped_line_is_not_kept_in_memory() -> None:
    """The bytes of a line over the limit are counted and not kept in memory."""
    framer = LineFramer(limit=1000)
    for _ in range(1000):
        assert framer.feed(b"x" * 1000) == b""
    assert framer._parts == []
    assert framer.feed(b"\nnext\n") == b"next\n"
    assert framer.dropped == [1_000_000]


@pytest.mark.parametrize("megabytes", [8, pytest.param(64, marks=pytest.mark.deep)])
def test_a_long_line_takes_linear_time(megabytes: int) -> None:
    """A long line in small pieces takes linear time."""
    framer = LineFramer()
    start = time.process_time()
    for _ in range(megabytes * 256):
        framer.feed(b"x" * 4096)
    assert len(framer.feed(b"\n")) == megabytes * 1024 * 1024 + 1
    assert time.process_time() - start < 5
