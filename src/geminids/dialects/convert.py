"""Recorded runs in another format, byte for byte as a live run prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from geminids.dialects.dialect import Dialect
from geminids.events.model import Event, Finished, encode_event

__all__ = ["EventsEncoder", "converted"]


class EventsEncoder:
    """Our own format: each event as a line of JSON."""

    def feed(self, events: Sequence[Event]) -> bytes:
        return b"".join([encode_event(event) + b"\n" for event in events])

    def finish(self) -> bytes:
        return b""


def converted(new_encoder: Callable[[], Dialect], batches: Iterable[Sequence[Event]]) -> Iterator[bytes]:
    """Encode recorded runs, each with a new encoder; a recording may hold several runs in a row.

    A run without a `Finished`, or a recording without a run, is encoded as a run that was cut off.
    """
    encoder: Dialect | None = new_encoder()
    for batch in batches:
        for part, is_finished in _by_run(batch):
            encoder = encoder or new_encoder()
            yield encoder.feed(part)
            if is_finished:
                yield encoder.finish()
                encoder = None
    if encoder is not None:
        yield encoder.finish()


def _by_run(batch: Sequence[Event]) -> Iterator[tuple[Sequence[Event], bool]]:
    """Cut the batch after each `Finished`."""
    start = 0
    for end in [end for end, event in enumerate(batch, 1) if type(event) is Finished]:
        yield batch[start:end], True
        start = end
    if start < len(batch):
        yield batch[start:] if start else batch, False
