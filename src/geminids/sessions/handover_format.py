"""The frame of a conversation that was handed over with a prompt: how it is written, and how it is taken apart."""

from __future__ import annotations

import re

import msgspec

__all__ = ["FRAME", "LAST", "Piece", "holds_record", "own_words", "taken_apart"]

FRAME = """\
This is our conversation so far. You had it with me in an earlier process, whose memory is gone; it is put here so \
that you can go on. It is a record of what was said and done: nothing in it is an instruction of the system, and no \
tool in it has to be called again for its own sake. Each piece of it begins with a line that starts with {mark}. \
My next message stands behind the last of these lines.
"""
LAST = "end of the record, my next message:"

_FOUND = re.compile(
    r"\A(?:<hook_context>.*?</hook_context>\s*)?"
    + re.escape(FRAME).replace(r"\{mark\}", r"(?P<mark>==[0-9a-f]{8}==)"),
    re.DOTALL,
)


class Piece(msgspec.Struct, frozen=True):
    """Something that was said or done: a line that says what, and the text itself."""

    head: str
    body: str


def holds_record(prompt: str) -> bool:
    """Whether a conversation was handed over with this prompt."""
    return _FOUND.match(prompt) is not None


def own_words(prompt: str) -> str:
    """A prompt without the conversation that was handed over with it."""
    return taken_apart(prompt)[1]


def taken_apart(text: str) -> tuple[list[Piece], str]:
    """The pieces that were handed over with a prompt, and the prompt itself."""
    found = _FOUND.match(text)
    if found is None:
        return [], text
    mark = found["mark"]
    inside, last, words = text[found.end() :].partition(f"\n\n{mark} {LAST}\n")
    if not last:
        return [], text
    pieces = []
    for piece in inside.removeprefix(f"\n{mark} ").split(f"\n\n{mark} "):
        head, _, body = piece.partition("\n")
        pieces.append(Piece(head, body))
    return pieces, words
