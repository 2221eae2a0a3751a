"""The messages between a client and the pool's owner: lines of JSON, a greeting first, one run a connection.

`Hello` and `Leave` never change: by them two versions of this package tell each other apart.
"""

from __future__ import annotations

import msgspec

from geminids.events.model import AnyEvent, By, Choice
from geminids.options import Options

__all__ = [
    "PROTOCOL",
    "Answer",
    "Asked",
    "Cold",
    "End",
    "Ended",
    "Hello",
    "Leave",
    "Look",
    "Order",
    "OwnerStatus",
    "Process",
    "Stop",
    "Told",
    "as_line",
    "asked_in",
    "greeting_of",
    "leaves",
    "told_in",
]

PROTOCOL = 1


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """One line."""


class Hello(_Message, frozen=True, kw_only=True):
    """The first message of both sides. A peer of another version is sent only `Leave`."""

    protocol: int
    version: str
    uid: int
    pid: int


class Leave(_Message, frozen=True, kw_only=True):
    """Accept no new runs, release the socket for another owner, and end after the last run."""


class Order(_Message, frozen=True, kw_only=True):
    """A run. `environ` and `umask` are the client's; `asks`: the client answers permission requests."""

    prompt: str
    options: Options
    environ: dict[str, str]
    umask: int
    asks: bool
    keep: float
    """Seconds that the owner waits for the next run."""


class Answer(_Message, frozen=True, kw_only=True):
    """The answer to a permission request."""

    id: str
    decision: Choice
    by: By = "person"
    reason: str | None = None


class Stop(_Message, frozen=True, kw_only=True):
    """Stop the run; a second one skips the grace period."""

    reason: str
    by_deadline: bool = False


class Look(_Message, frozen=True, kw_only=True):
    """Request the status of the owner."""


class End(_Message, frozen=True, kw_only=True):
    """End now, with all runs and processes."""


class Cold(_Message, frozen=True, kw_only=True):
    """The owner cannot serve the run and did not start it."""

    why: str


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A warm process as `geminids warm status` shows it."""

    pid: int
    version: str | None
    chats: int
    turns: int
    memory: int
    age: float
    idle: float | None


class OwnerStatus(_Message, frozen=True, kw_only=True, tag="status"):
    """The owner: its start (Unix time), its running runs, and how long it waits for the next."""

    pid: int
    version: str
    since: float
    runs: int
    served: int
    ends_in: float | None
    processes: tuple[Process, ...]


class Ended(_Message, frozen=True, kw_only=True):
    """The owner ends, with these runs and processes."""

    pid: int
    runs: int
    processes: tuple[int, ...]


Asked = Leave | Order | Answer | Stop | Look | End
Told = AnyEvent | Cold | OwnerStatus | Ended

_encoder = msgspec.json.Encoder()
_greeting: msgspec.json.Decoder[Hello] = msgspec.json.Decoder(Hello)
_asked: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)
_told: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)


def as_line(message: msgspec.Struct) -> bytes:
    """Encode a message as a line; raises UnicodeEncodeError for invalid text."""
    return _encoder.encode(message) + b"\n"


def greeting_of(line: bytes) -> Hello | None:
    """Decode a greeting; None for anything else."""
    try:
        return _greeting.decode(line)
    except msgspec.DecodeError:
        return None


def leaves(line: bytes) -> bool:
    """Whether another version of this package asks us to leave."""
    try:
        return isinstance(_asked.decode(line), Leave)
    except msgspec.DecodeError:
        return False


def asked_in(block: bytes) -> list[Asked]:
    """Decode a message of a client; raises `msgspec.DecodeError`."""
    return _asked.decode_lines(block)


def told_in(block: bytes) -> list[Told]:
    """Decode a message of the owner; raises `msgspec.DecodeError`."""
    return _told.decode_lines(block)
