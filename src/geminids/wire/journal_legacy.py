"""Legacy session files (to 0.38) message by message: one JSON object, indented by two blanks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from geminids.wire.journal_odd import UNREADABLE

__all__ = ["Block", "blocks", "skeleton"]

# A text has no line break in it, so a line like this is always the bracket that it looks like.
_FIRST, _LAST, _LAST_BUT_MORE = b"    {", b"    }", b"    },"
_MESSAGES, _END = b'  "messages": [', b"  ]"


class Block(msgspec.Struct, frozen=True, gc=False):
    """A piece of the file: a whole message, or a line around the messages."""

    offset: int
    text: bytes
    is_message: bool


def blocks(lines: Iterable[bytes]) -> Iterator[Block]:
    """The pieces of a file as the CLI writes it; a message that is cut off is a piece that is none."""
    inside, offset, start = False, 0, 0
    held: list[bytes] = []
    for line in lines:
        bare = line.rstrip(b"\r\n")
        if held:
            held.append(line)
            if bare in (_LAST, _LAST_BUT_MORE):
                yield Block(start, b"".join(held).rstrip(b",\r\n"), True)
                held = []
                if bare == _LAST_BUT_MORE:
                    yield Block(offset, b",", False)
        elif inside and bare == _FIRST:
            held, start = [line], offset
        else:
            inside = bare == _MESSAGES or (inside and not bare.startswith(_END))
            yield Block(offset, line, False)
        offset += len(line)
    if held:
        yield Block(start, b"".join(held), False)


def skeleton(text: bytes) -> dict[str, Any] | None:
    """What stands around the messages, each of which is `null` in it; None where that is no session."""
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) and "sessionId" in value else None
