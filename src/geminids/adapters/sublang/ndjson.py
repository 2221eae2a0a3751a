"""Parse newline-delimited JSON from a stream of chunks, and yield one result for each line."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any, Literal

import msgspec

from geminids.process.line_framer import LineFramer

__all__ = ["NdjsonError", "NdjsonLine", "NdjsonResult", "parse_ndjson"]

_BOM = b"\xef\xbb\xbf"


class NdjsonLine(msgspec.Struct, frozen=True):
    """A line with valid JSON. `data` is the decoded value."""

    data: Any
    ok: Literal[True] = True


class NdjsonError(msgspec.Struct, frozen=True):
    """A line that is not valid JSON, or is too long. `error` says what is wrong. `raw` is the text
    of the line; it is empty if the line is too long."""

    error: str
    raw: str
    ok: Literal[False] = False


NdjsonResult = NdjsonLine | NdjsonError


async def parse_ndjson(stream: AsyncIterable[bytes | str]) -> AsyncIterator[NdjsonResult]:
    """Yield one result for each line of `stream`. An invalid line gives an `NdjsonError`, and
    parsing continues with the next line.

    Chunks may end anywhere, even inside a character. Empty lines are skipped. The last line needs
    no newline.
    """
    framer = LineFramer()
    async for chunk in stream:
        block = framer.feed(chunk.encode() if isinstance(chunk, str) else chunk)
        for result in _results(framer, block):
            yield result
    for result in _results(framer, framer.rest()):
        yield result


def _results(framer: LineFramer, block: bytes) -> Iterator[NdjsonResult]:
    sizes, framer.dropped = framer.dropped, []
    for size in sizes:
        yield NdjsonError(f"the line has {size:,} bytes; the limit is {framer.limit:,}", "")
    for line in block.split(b"\n"):
        if text := line.removeprefix(_BOM).strip():
            yield _decode(text)


def _decode(line: bytes) -> NdjsonResult:
    try:
        return NdjsonLine(msgspec.json.decode(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return NdjsonError(str(error), line.decode("utf-8", "replace"))
