"""Output for pipes: events as JSON lines, the answer alone, its value, or another format."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from geminids.events.encoding import encode_json
from geminids.events.model import Event, Finished, Notice, encode_event
from geminids.views.sanitize import one_line

if TYPE_CHECKING:
    from geminids.dialects.dialect import Dialect

__all__ = ["DialectOutput", "flush", "print_answer", "print_events", "print_value"]

# A log of a run that nobody watches says why it takes long.
_TOLD = ("next_attempt", "stall")


def print_events(*events: Event) -> None:
    """Each event as one line of JSON; those of one call are written at once."""
    if not sys.stdout:
        return  # closed by whoever started us
    sys.stdout.buffer.write(b"".join(encode_event(event) + b"\n" for event in events))
    sys.stdout.buffer.flush()


def print_answer(*events: Event) -> None:
    """The answer, when it is whole."""
    _say_waits(*events)
    if not sys.stdout:
        return
    for event in events:
        if isinstance(event, Finished) and event.answer:
            text = event.answer if event.answer.endswith("\n") else event.answer + "\n"
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def print_value(*events: Event) -> None:
    """The JSON value that a schema asked for, or nothing: a program reads it."""
    _say_waits(*events)
    for event in events:
        if sys.stdout and isinstance(event, Finished) and event.outcome == "success":
            sys.stdout.buffer.write(encode_json(event.value) + b"\n")


def _say_waits(*events: Event) -> None:
    for event in events:
        if isinstance(event, Notice) and event.code in _TOLD and event.level == "warning" and sys.stderr:
            with suppress(OSError):  # nobody reads it
                print(f"geminids: {one_line(event.message)}", file=sys.stderr, flush=True)


def flush() -> None:
    if sys.stdout:
        sys.stdout.flush()


class DialectOutput:
    """What a dialect says is written at once; `last` is what it said at the end."""

    def __init__(self, encoder: Dialect) -> None:
        self._encoder = encoder
        self.last = b""

    def show(self, *events: Event) -> None:
        self._write(self._encoder.feed(events))

    def close(self) -> None:
        self.last = self._encoder.finish()
        self._write(self.last)

    def _write(self, said: bytes) -> None:
        if said and sys.stdout:
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()
