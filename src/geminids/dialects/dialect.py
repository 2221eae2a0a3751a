"""The interface of all dialects. A dialect is the output format of another system; its encoder
takes events and returns bytes in this format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Protocol

from geminids.errors import GeminidsError
from geminids.events.model import Event

__all__ = ["DIALECTS", "Dialect", "dialect", "encode_run"]

# The name in `--output` and `convert --to`, and the module with its `Encoder`.
DIALECTS: dict[str, str] = {
    "adapter": "geminids.dialects.leadmetrics",
    "agent-events": "geminids.dialects.agent_events",
    "atif": "geminids.dialects.atif",
    "claude": "geminids.dialects.claude",
    "record": "geminids.dialects.record",
    "untether": "geminids.dialects.untether",
}


class Dialect(Protocol):
    """The interface of an encoder, which encodes the events of one run. An encoder raises no
    exception for any event."""

    def feed(self, events: Sequence[Event]) -> bytes:
        """Take events, and return the output that is complete: whole lines, or empty bytes."""
        ...

    def finish(self) -> bytes:
        """Return the remaining output.

        Call this method once after the last event, even if that event is not `Finished`.
        """
        ...


def dialect(name: str, *, partial: bool = False) -> Dialect:
    """Return a new encoder of the dialect `name`.

    Raises `GeminidsError` if there is no such dialect.

    `partial` is only for the dialect `claude`. With `partial`, pieces of messages are emitted too,
    as with Claude's flag `--include-partial-messages`.
    """
    if name not in DIALECTS:
        raise GeminidsError(
            f"there is no dialect {name!r}", hint=f"Use one of: {', '.join(sorted(DIALECTS))}."
        )
    encoder_class = import_module(DIALECTS[name]).Encoder
    encoder: Dialect = encoder_class(partial=True) if partial else encoder_class()
    return encoder


def encode_run(name: str, events: Iterable[Event]) -> Iterator[bytes]:
    """Encode a whole run in the dialect `name`, and yield the output piece by piece."""
    encoder = dialect(name)
    for event in events:
        if output := encoder.feed((event,)):
            yield output
    if output := encoder.finish():
        yield output
