"""Convert the events of recorded runs to another format. The output is byte for byte what a live
run with the same events prints in this format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from geminids.dialects.dialect import Dialect
from geminids.events.model import Event, Finished, encode_event

__all__ = ["EventsEncoder", "converted"]


class EventsEncoder:
    """Encodes events in geminids' own format: each event is one line of JSON."""

    def feed(self, events: Sequence[Event]) -> bytes:
        return b"".join([encode_event(event) + b"\n" for event in events])

    def finish(self) -> bytes:
        return b""


def converted(new_encoder: Callable[[], Dialect], batches: Iterable[Sequence[Event]]) -> Iterator[bytes]:
    """Encode a recording, and yield the output piece by piece.

    `batches` are the events of the recording, which can contain several runs, one after another.
    `new_encoder` is called once for each run.

    `Finished` is the last event of a complete run. If the recording does not end with `Finished`,
    its last run is encoded as a run that was cut off. A recording without events is encoded as one
    run that was cut off.
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
    """Split a batch of events after each `Finished`, the last event of a run. Yield each part, and
    whether the part ends with `Finished`."""
    start = 0
    for end in [end for end, event in enumerate(batch, 1) if type(event) is Finished]:
        yield batch[start:end], True
        start = end
    if start < len(batch):
        yield batch[start:] if start else batch, False
