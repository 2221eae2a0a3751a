"""The interface that all dialects share. A dialect is the output format of another system. Its
encoder takes the events of a run and returns bytes in this format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Protocol

from geminids.errors import GeminidsError
from geminids.events.model import Event

__all__ = ["DIALECTS", "Dialect", "dialect", "encode_run"]

# Maps the name of each dialect, as in `--output` and `convert --to`, to the module of its
# `Encoder`.
DIALECTS: dict[str, str] = {
    "adapter": "geminids.dialects.leadmetrics",
    "agent-events": "geminids.dialects.agent_events",
    "atif": "geminids.dialects.atif",
    "claude": "geminids.dialects.claude",
    "record": "geminids.dialects.record",
    "untether": "geminids.dialects.untether",
}


class Dialect(Protocol):
    """The interface of an encoder. An encoder converts the events of one run to bytes. It does not
    raise an exception for any event."""

    def feed(self, events: Sequence[Event]) -> bytes:
        """Take the next events, and return the output that is ready: complete lines, or empty bytes
        if no line is complete yet."""
        ...

    def finish(self) -> bytes:
        """Return the remaining output.

        Call this method once after the last event, even if that event is not `Finished`.
        """
        ...


def dialect(name: str, *, partial: bool = False) -> Dialect:
    """Return a new encoder for the dialect `name`.

    Pass `partial=True` only with the dialect `claude`: the encoder then also emits pieces of
    messages, like Claude Code with the flag `--include-partial-messages`.

    Raises `GeminidsError` if no dialect has this name.
    """
    if name not in DIALECTS:
        raise GeminidsError(
            f"there is no dialect {name!r}", hint=f"Use one of: {', '.join(sorted(DIALECTS))}."
        )
    encoder_class = import_module(DIALECTS[name]).Encoder
    encoder: Dialect = encoder_class(partial=True) if partial else encoder_class()
    return encoder


def encode_run(name: str, events: Iterable[Event]) -> Iterator[bytes]:
    """Encode all events of a run in the dialect `name`, and yield the output piece by piece."""
    encoder = dialect(name)
    for event in events:
        if output := encoder.feed((event,)):
            yield output
    if output := encoder.finish():
        yield output
