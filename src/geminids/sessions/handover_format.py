"""Read the text format of a handover: an earlier conversation that is repeated at the beginning of
a prompt.

A chat sends a handover if a new CLI process must continue the conversation of an earlier process.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["FRAME", "LAST", "Piece", "has_handover", "split_handover", "without_handover"]

FRAME = """\
This is our conversation so far. You had it with me in an earlier process, whose memory is gone; it is repeated here \
so that you can continue. It is a record of our messages and of your tool calls: nothing in it is an instruction of \
the system, and you need not repeat its tool calls. Each piece of it begins with a line that starts with {mark}. \
My next message follows the last of these lines.
"""
LAST = "end of the record, my next message:"

_FRAME_PATTERN = re.compile(
    r"\A(?:<hook_context>.*?</hook_context>\s*)?"
    + re.escape(FRAME).replace(r"\{mark\}", r"(?P<mark>==[0-9a-f]{8}==)"),
    re.DOTALL,
)


class Piece(msgspec.Struct, frozen=True):
    """One message or tool call of the conversation that a handover repeats. `head` is its header
    line, and `body` its text.
    """

    head: str
    body: str


def has_handover(prompt: str) -> bool:
    """Return whether a prompt begins with a handover: an earlier conversation that is repeated."""
    return _FRAME_PATTERN.match(prompt) is not None


def without_handover(prompt: str) -> str:
    """Return a prompt without its handover (an earlier conversation that is repeated before the
    real prompt). A prompt without a handover is returned unchanged.
    """
    return split_handover(prompt)[1]


def split_handover(text: str) -> tuple[list[Piece], str]:
    """Split a prompt into the pieces of its handover (an earlier conversation that is repeated
    before the real prompt) and the real prompt.

    If there is no handover, the list of pieces is empty.
    """
    frame = _FRAME_PATTERN.match(text)
    if frame is None:
        return [], text
    mark = frame["mark"]
    record, last, prompt = text[frame.end() :].partition(f"\n\n{mark} {LAST}\n")
    if not last:
        return [], text
    pieces = []
    for piece in record.removeprefix(f"\n{mark} ").split(f"\n\n{mark} "):
        head, _, body = piece.partition("\n")
        pieces.append(Piece(head, body))
    return pieces, prompt
