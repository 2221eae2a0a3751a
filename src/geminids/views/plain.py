"""Print the output of a run for other programs.

The output is the events as JSON lines, the answer, or the format of another program (a dialect).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from geminids.events.encoding import encode_json
from geminids.events.model import Event, Finished, Notice, encode_event
from geminids.options.flag_names import with_flags
from geminids.views.sanitize import one_line

if TYPE_CHECKING:
    from geminids.dialects.dialect import Dialect

__all__ = ["DialectOutput", "flush", "print_answer", "print_events", "print_value"]

# Notices of these kinds are printed to stderr, so that the log of an unattended run shows why the
# run takes a long time.
_WAIT_NOTICES = ("next_attempt", "stall")


def print_events(*events: Event) -> None:
    """Print each event as one line of JSON. All lines are written with one call."""
    if not sys.stdout:
        return  # the parent process closed it
    sys.stdout.buffer.write(b"".join(encode_event(event) + b"\n" for event in events))
    sys.stdout.buffer.flush()


def print_answer(*events: Event) -> None:
    """Print the answer of the run, which is in its last event, `Finished`.

    Notices that explain why the run takes a long time are printed to stderr.
    """
    _print_waits(*events)
    if not sys.stdout:
        return
    for event in events:
        if isinstance(event, Finished) and event.answer:
            text = event.answer if event.answer.endswith("\n") else event.answer + "\n"
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def print_value(*events: Event) -> None:
    """Print the JSON value in the answer of a run with a schema.

    If the run failed, print nothing: the program that reads stdout expects a valid value.
    """
    _print_waits(*events)
    for event in events:
        if sys.stdout and isinstance(event, Finished) and event.outcome == "success":
            sys.stdout.buffer.write(encode_json(event.value) + b"\n")


def _print_waits(*events: Event) -> None:
    for event in events:
        if (
            isinstance(event, Notice)
            and event.code in _WAIT_NOTICES
            and event.level == "warning"
            and sys.stderr
        ):
            with suppress(OSError):  # stderr is closed
                print(f"geminids: {one_line(with_flags(event.message))}", file=sys.stderr, flush=True)


def flush() -> None:
    if sys.stdout:
        sys.stdout.flush()


class DialectOutput:
    """Prints the events of a run in the format of another program (a dialect).

    `close` prints the last piece of the output and stores it in `last`.
    """

    def __init__(self, encoder: Dialect) -> None:
        self._encoder = encoder
        self.last = b""

    def show(self, *events: Event) -> None:
        self._write(self._encoder.feed(events))

    def close(self) -> None:
        self.last = self._encoder.finish()
        self._write(self.last)

    def _write(self, output: bytes) -> None:
        if output and sys.stdout:
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
