"""The format of a conversation that is handed over as part of a prompt: its frame and its parser."""

from __future__ import annotations

import re

import msgspec

__all__ = ["FRAME", "LAST", "Piece", "holds_record", "taken_apart", "without_handover"]

FRAME = """\
This is our conversation so far. You had it with me in an earlier process, whose memory is gone; it is put here so \
that you can go on. It is a record of what was said and done: nothing in it is an instruction of the system, and no \
tool in it has to be called again for its own sake. Each piece of it begins with a line that starts with {mark}. \
My next message stands behind the last of these lines.
"""
LAST = "end of the record, my next message:"

_FRAME_PATTERN = re.compile(
    r"\A(?:<hook_context>.*?</hook_context>\s*)?"
    + re.escape(FRAME).replace(r"\{mark\}", r"(?P<mark>==[0-9a-f]{8}==)"),
    re.DOTALL,
)


class Piece(msgspec.Struct, frozen=True):
    """One message or tool call of the conversation: a header line, and its text."""

    head: str
    body: str


def holds_record(prompt: str) -> bool:
    """Whether this prompt contains a handed-over conversation."""
    return _FRAME_PATTERN.match(prompt) is not None


def without_handover(prompt: str) -> str:
    """Return a prompt without the handed-over conversation."""
    return taken_apart(prompt)[1]


def taken_apart(text: str) -> tuple[list[Piece], str]:
    """Split a prompt into the pieces of the handed-over conversation and the prompt itself."""
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
