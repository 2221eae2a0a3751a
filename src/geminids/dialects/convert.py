"""Recorded runs in another tongue: the same bytes as the runs themselves gave when they were spoken live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from geminids.dialects.dialect import Tongue
from geminids.events.model import Event, Finished, encode_event

__all__ = ["Own", "converted"]


class Own:
    """Our own tongue: each event as a line of JSON."""

    def hear(self, events: Sequence[Event]) -> bytes:
        return b"".join([encode_event(event) + b"\n" for event in events])

    def end(self) -> bytes:
        return b""


def converted(speaker: Callable[[], Tongue], batches: Iterable[Sequence[Event]]) -> Iterator[bytes]:
    """What a new speaker for each run says of it; several runs may stand one behind the other.

    A run without its end is ended as its dialect ends one that was cut off; so is a recording without a run.
    """
    talking: Tongue | None = speaker()
    for batch in batches:
        for part, is_over in _by_run(batch):
            talking = talking or speaker()
            yield talking.hear(part)
            if is_over:
                yield talking.end()
                talking = None
    if talking is not None:
        yield talking.end()


def _by_run(batch: Sequence[Event]) -> Iterator[tuple[Sequence[Event], bool]]:
    """The batch, cut behind every end of a run."""
    begin = 0
    for place in [place for place, event in enumerate(batch, 1) if type(event) is Finished]:
        yield batch[begin:place], True
        begin = place
    if begin < len(batch):
        yield batch[begin:] if begin else batch, False
