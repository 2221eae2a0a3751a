"""A run of many events in one dialect, in a process of its own: prints one line of JSON.

python -m benchmarks.dialect_worker NAME EVENTS_FILE WARM_UP_FILE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import psutil

from benchmarks.worker import peak
from geminids.dialects.conversion import Own
from geminids.dialects.tongue import Tongue, tongue
from geminids.events.model import Event
from geminids.run.recorded import open_recording


class _Mute:
    """Hears, and says nothing: what reading alone takes."""

    def hear(self, events: Sequence[Event]) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


def speak(name: str, file: str) -> tuple[int, float]:
    """How many events were heard, and how long the dialect took for them: reading is not counted."""
    word, _, partial = name.partition(" ")
    own: dict[str, Callable[[], Tongue]] = {"events": Own, "reading": _Mute}
    speaker = own[word]() if word in own else tongue(word, partial=bool(partial))
    count, took = 0, 0.0
    clock = time.perf_counter
    with open(file, "rb") as source:
        for batch in open_recording(source).batches():
            began = clock()
            speaker.hear(batch)
            took += clock() - began
            count += len(batch)
    began = clock()
    speaker.end()
    return count, took + clock() - began


def main() -> None:
    _, name, big, small = sys.argv
    speak(name, small)
    before = psutil.Process().memory_info().rss
    count, took = speak(name, big)
    print(json.dumps({"count": count, "seconds": took, "megabytes": (peak() - before) / 1e6}))


if __name__ == "__main__":
    main()
