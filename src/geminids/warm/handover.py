"""A conversation as one text, for a new session that shall go on with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from geminids.errors import SessionError
from geminids.events.model import ToolFinished, Turn
from geminids.gemini.protocol.journal.records import Message
from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, MAX_PROMPT_UNITS
from geminids.options import Options
from geminids.sessions.handover_format import FRAME, LAST, Piece, holds_record, taken_apart
from geminids.sessions.loader import load
from geminids.sessions.transcript import Entry, Prompt, Said, Tool, entries

__all__ = ["CutTurn", "as_text", "conversation_text", "has_arrived", "with_more"]

# Of what fits into a prompt; the rest is for the prompt itself and for what the agent does then.
_SHARE = 0.75
_LONGEST_OUTPUT = 4000

_YOU, _ME = "you said:", "I said:"


class CutTurn(msgspec.Struct, frozen=True):
    """A turn that was stopped or failed. The CLI takes it back, so the model knows nothing of it."""

    prompt: str
    turns: tuple[Turn, ...]
    reason: str


def conversation_text(
    session_id: str,
    options: Options,
    environ: Mapping[str, str] | None = None,
    cut: Sequence[CutTurn] = (),
    without: str | None = None,
) -> str | None:
    """A stored session as text, with the turns that were `cut` behind it.

    None if it is empty, cannot be read, or does not fit into a prompt. `without`: the last prompt is left out, with all
    that came of it, if it is this one.
    """
    return as_text(_stored(session_id, options, environ), cut, without)


def with_more(text: str, cut: Sequence[CutTurn]) -> str | None:
    """A conversation that has not arrived yet, with turns that were cut since."""
    return _framed([*taken_apart(text)[0], *_retold(cut, ())])


def has_arrived(session_id: str, options: Options, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a stored session holds a conversation that was handed over to it."""
    return any(one.is_prompt and holds_record(one.text) for one in _stored(session_id, options, environ))


def _stored(session_id: str, options: Options, environ: Mapping[str, str] | None) -> list[Message]:
    around = {**(os.environ if environ is None else environ), **options.env}
    try:
        return load(session_id, options.cwd, home=options.home, environ=around).messages
    except SessionError:
        return []


def as_text(
    messages: Iterable[Message], cut: Sequence[CutTurn] = (), without: str | None = None
) -> str | None:
    """A conversation as a text to be put before a prompt; None where it is empty or does not fit."""
    stored = _pieces(entries(messages))
    last = max((at for at, piece in enumerate(stored) if piece.head == _ME), default=None)
    if without is not None and last is not None and stored[last].body.strip() == without.strip():
        del stored[last:]
    return _framed([*stored, *_retold(cut, stored)])


def _framed(told_so_far: Sequence[Piece]) -> str | None:
    pieces = [Piece(_sendable(one.head), _sendable(one.body)) for one in told_so_far]
    if not pieces:
        return None
    mark = _mark_for(pieces)
    told = [f"{mark} {one.head}\n{one.body}\n" for one in pieces]
    text = "\n".join([FRAME.format(mark=mark), *told, f"{mark} {LAST}\n"])
    return text if _fits(text) else None


def _pieces(shown: Iterable[Entry]) -> list[Piece]:
    """The pieces in their order. What was handed over to this very session comes first, once and flat."""
    before: list[Piece] = []
    own: list[Piece] = []
    for entry in shown:
        if isinstance(entry, Prompt):
            taken, words = taken_apart(entry.text)
            # A prompt that failed was sent again, with the same conversation before it.
            before = max(before, taken, key=len)
            own.append(Piece(_ME, "\n".join([words, *_missing(entry)])))
        elif isinstance(entry, Said):
            own.append(Piece(_YOU, entry.text))
        elif isinstance(entry, Tool):
            own += _called(entry)
    return before + own


def _retold(cut: Sequence[CutTurn], stored: Sequence[Piece]) -> Iterator[Piece]:
    """The turns that were cut, but for those whose prompt the session has kept."""
    kept = [one.body.strip() for one in stored if one.head == _ME]
    for one in cut:
        if one.prompt.strip() in kept:
            continue
        yield Piece(_ME, one.prompt)
        for turn in one.turns:
            if turn.text:
                yield Piece(_YOU, turn.text)
            for tool in turn.tools:
                if tool.parent is None:
                    yield from _called(tool)
        yield Piece("this turn was cut off here:", one.reason)


def _missing(prompt: Prompt) -> Iterator[str]:
    for one in prompt.media:
        yield f"[Here I gave you a file ({one.media_type}). It is not in this record.]"


def _called(tool: Tool | ToolFinished) -> Iterator[Piece]:
    yield Piece(f"you called the tool {_one_line(tool.name)}:", _json(tool.input))
    how = tool.status if tool.exit_code is None else f"{tool.status}, exit code {tool.exit_code}"
    yield Piece(f"the result of {_one_line(tool.name)} ({how}):", _cut(tool.output or tool.error or ""))


def _mark_for(pieces: list[Piece]) -> str:
    """What begins no line of theirs, nor stands anywhere else in them: nobody can end the record from within."""
    while True:
        mark = f"=={os.urandom(4).hex()}=="
        if not any(mark in one.head or mark in one.body for one in pieces):
            return mark


def _cut(output: str) -> str:
    """A long output without its middle."""
    over = len(output) - _LONGEST_OUTPUT
    if over <= 0:
        return output
    half = _LONGEST_OUTPUT // 2
    return f"{output[:half]}\n[{over:,} characters are left out here]\n{output[-half:]}"


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "(what it was called with cannot be shown)"


def _one_line(name: str) -> str:
    return " ".join(name.split()) or "(without a name)"


def _sendable(text: str) -> str:
    """Without what no prompt may hold: NUL, and halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _fits(text: str) -> bool:
    if len(text.encode()) > _SHARE * MAX_PROMPT_BYTES:
        return False
    return len(text.encode("utf-16-le")) // 2 <= _SHARE * MAX_PROMPT_UNITS
