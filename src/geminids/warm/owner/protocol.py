"""The messages between a client and the owner daemon. Each message is a line of JSON.

Both sides first send a greeting. A connection serves one run.

`Hello` and `RetireOwner` must never change: two versions of this package use them to recognise each
other.
"""

from __future__ import annotations

import msgspec

from geminids.events.model import AnyEvent, By, Choice
from geminids.options import Options

__all__ = [
    "PROTOCOL",
    "AnswerMessage",
    "ClientMessage",
    "End",
    "Hello",
    "NotServed",
    "Order",
    "OwnerEnded",
    "OwnerMessage",
    "OwnerStatus",
    "Process",
    "RetireOwner",
    "StatusRequest",
    "Stop",
    "as_line",
    "decode_client_messages",
    "decode_owner_messages",
    "greeting_of",
    "leaves",
]

PROTOCOL = 1


class _ProtocolMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """The base class of all messages."""


class Hello(_ProtocolMessage, frozen=True, kw_only=True):
    """The greeting: the first message of both sides, the client and the owner daemon.

    If the client and the daemon have different versions, the client may only send `RetireOwner`
    after the greeting.
    """

    protocol: int
    version: str
    uid: int
    pid: int


class RetireOwner(_ProtocolMessage, frozen=True, kw_only=True, tag="leave"):
    """Asks the owner daemon to release the socket for another daemon.

    The daemon then ends after its last run.
    """


class Order(_ProtocolMessage, frozen=True, kw_only=True):
    """Asks the owner daemon to serve a run.

    `environ` and `umask` are those of the client. `asks` is True if the client answers permission
    requests.
    """

    prompt: str
    options: Options
    environ: dict[str, str]
    umask: int
    asks: bool
    keep: float
    """The number of seconds that the owner daemon waits for another run after the end of this one.
    Then the daemon ends.
    """


class AnswerMessage(_ProtocolMessage, frozen=True, kw_only=True, tag="answer"):
    """The client's answer to a permission request."""

    id: str
    decision: Choice
    by: By = "person"
    reason: str | None = None


class Stop(_ProtocolMessage, frozen=True, kw_only=True):
    """Asks the owner daemon to stop the run. A second `Stop` skips the grace period.

    `by_deadline` is True if a time-out is the reason.
    """

    reason: str
    by_deadline: bool = False


class StatusRequest(_ProtocolMessage, frozen=True, kw_only=True, tag="look"):
    """Asks for the status of the owner daemon."""


class End(_ProtocolMessage, frozen=True, kw_only=True):
    """Asks the owner daemon to end now, with all its runs and processes."""


class NotServed(_ProtocolMessage, frozen=True, kw_only=True, tag="cold"):
    """Reports that the owner daemon has not started the run, and why."""

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


class OwnerStatus(_ProtocolMessage, frozen=True, kw_only=True, tag="status"):
    """The state of the owner daemon.

    `since` is its start time (Unix). `runs` is the number of current runs, and `served` is the
    number of runs that have ended. `ends_in` is the number of seconds after which the daemon ends
    if no run begins; None while the daemon has runs.
    """

    pid: int
    version: str
    since: float
    runs: int
    served: int
    ends_in: float | None
    processes: tuple[Process, ...]


class OwnerEnded(_ProtocolMessage, frozen=True, kw_only=True, tag="ended"):
    """Reports that the owner daemon now ends.

    `runs` is the number of runs that end with the daemon. `processes` are the ids of its warm
    processes.
    """

    pid: int
    runs: int
    processes: tuple[int, ...]


ClientMessage = RetireOwner | Order | AnswerMessage | Stop | StatusRequest | End
OwnerMessage = AnyEvent | NotServed | OwnerStatus | OwnerEnded

_encoder = msgspec.json.Encoder()
_greeting: msgspec.json.Decoder[Hello] = msgspec.json.Decoder(Hello)
_client_message: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_owner_message: msgspec.json.Decoder[OwnerMessage] = msgspec.json.Decoder(OwnerMessage)


def as_line(message: msgspec.Struct) -> bytes:
    """Encode a message as a line of JSON.

    Raises `UnicodeEncodeError` if a text in the message cannot be encoded as UTF-8.
    """
    return _encoder.encode(message) + b"\n"


def greeting_of(line: bytes) -> Hello | None:
    """Decode a greeting. Return None if the line is not a greeting."""
    try:
        return _greeting.decode(line)
    except msgspec.DecodeError:
        return None


def leaves(line: bytes) -> bool:
    """Whether a client's line asks the owner daemon to release its socket (`RetireOwner`).

    A client of another version sends this line before it starts an owner daemon of its own version.
    """
    try:
        return isinstance(_client_message.decode(line), RetireOwner)
    except msgspec.DecodeError:
        return False


def decode_client_messages(block: bytes) -> list[ClientMessage]:
    """Decode lines that a client has sent. Raises `msgspec.DecodeError` if a line is not valid."""
    return _client_message.decode_lines(block)


def decode_owner_messages(block: bytes) -> list[OwnerMessage]:
    """Decode lines that the owner daemon has sent. Raises `msgspec.DecodeError` if a line is not
    valid.
    """
    return _owner_message.decode_lines(block)
