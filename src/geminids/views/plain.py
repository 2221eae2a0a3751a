"""Plain output for pipes: the events as JSON lines, or the answer alone."""

from __future__ import annotations

import sys

from geminids.events.model import Event, Finished, encode_event

__all__ = ["flush", "print_answer", "print_event"]


def print_event(event: Event) -> None:
    """One event, one line of JSON."""
    sys.stdout.buffer.write(encode_event(event) + b"\n")
    sys.stdout.buffer.flush()


def print_answer(event: Event) -> None:
    """The answer, when it is whole."""
    if isinstance(event, Finished) and event.answer:
        text = event.answer if event.answer.endswith("\n") else event.answer + "\n"
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def flush() -> None:
    sys.stdout.flush()
