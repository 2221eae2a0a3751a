"""What every dialect of live events is: it hears events and speaks its own format, in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Protocol

from geminids.errors import GeminidsError
from geminids.events.model import Event

__all__ = ["TONGUES", "Tongue", "speak", "tongue"]

# How each is called in `--output` and `convert --to`, and where it lives.
TONGUES: dict[str, str] = {
    "adapter": "geminids.dialects.leadmetrics",
    "agent-events": "geminids.dialects.agent_events",
    "atif": "geminids.dialects.atif",
    "claude": "geminids.dialects.claude",
    "record": "geminids.dialects.record",
    "untether": "geminids.dialects.untether",
}


class Tongue(Protocol):
    """Made anew for each run. Nothing that it hears makes it raise."""

    def hear(self, events: Sequence[Event]) -> bytes:
        """What can be said now: whole lines, or nothing."""
        ...

    def end(self) -> bytes:
        """What is left to say; called once, after the last event, also where no `Finished` came."""
        ...


def tongue(name: str, *, partial: bool = False) -> Tongue:
    """A dialect by its name; raises `GeminidsError` for one that there is not.

    `partial` is for claude: pieces of messages too, as `--include-partial-messages` has them.
    """
    if name not in TONGUES:
        raise GeminidsError(f"there is no dialect {name!r}", hint=f"There are: {', '.join(sorted(TONGUES))}.")
    speaker = import_module(TONGUES[name]).Speaker
    made: Tongue = speaker(partial=True) if partial else speaker()
    return made


def speak(name: str, events: Iterable[Event]) -> Iterator[bytes]:
    """A whole run in another tongue, piece by piece."""
    speaker = tongue(name)
    for event in events:
        if said := speaker.hear((event,)):
            yield said
    if said := speaker.end():
        yield said
