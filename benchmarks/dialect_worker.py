"""Encode a run of many events in one dialect, in its own process, and print one line of JSON.

python -m benchmarks.dialect_worker NAME EVENTS_FILE WARM_UP_FILE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import psutil

from benchmarks.worker import peak
from geminids.dialects.convert import EventsEncoder
from geminids.dialects.dialect import Dialect, dialect
from geminids.dialects.otel import Spans
from geminids.events.model import Event
from geminids.run.recordings.load import open_recording


class _Discard:
    """An encoder that does nothing, to measure only the reading of events."""

    def feed(self, events: Sequence[Event]) -> bytes:
        return b""

    def finish(self) -> bytes:
        return b""


def _otel(name: str) -> Dialect:
    """Return the otel encoder with the API's no-op tracer, or with an SDK that exports no spans."""
    if name == "otel":
        from opentelemetry.trace import NoOpTracer

        return Spans(NoOpTracer())
    from opentelemetry.sdk.trace import TracerProvider

    return Spans(TracerProvider(shutdown_on_exit=False).get_tracer("benchmarks"))


def _encoder(name: str) -> Dialect:
    word, _, more = name.partition(" ")
    if word == "otel":
        return _otel(name)
    own: dict[str, Callable[[], Dialect]] = {"events": EventsEncoder, "reading": _Discard}
    return own[word]() if word in own else dialect(word, partial=bool(more))


def encode_run(name: str, file: str) -> tuple[int, float, int]:
    """Encode a file.

    Return the number of events, the seconds without reading, and the size of the last output in bytes.
    """
    encoder = _encoder(name)
    count, took, last = 0, 0.0, 0
    clock = time.thread_time  # CPU time: independent of other processes
    with open(file, "rb") as source:
        for batch in open_recording(source).batches():
            began = clock()
            encoded = encoder.feed(batch)
            took += clock() - began
            count += len(batch)
            last = len(encoded)
    began = clock()
    encoded = encoder.finish()
    return count, took + clock() - began, max(last, len(encoded))


def main() -> None:
    _, name, big, small = sys.argv
    encode_run(name, small)
    before = psutil.Process().memory_info().rss
    count, took, last = encode_run(name, big)
    used = (peak() - before) / 1e6
    print(json.dumps({"count": count, "seconds": took, "megabytes": used, "last": last / 1e6}))


if __name__ == "__main__":
    main()
