"""Render a conversation as one text, so that a new session can continue it."""

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
from geminids.sessions.transcript import AgentText, Entry, Prompt, Tool, entries

__all__ = ["CutTurn", "as_text", "conversation_text", "has_arrived", "with_more"]

# Share of the largest prompt; the rest is for the new prompt and the work of the agent.
_SHARE = 0.75
_MAX_OUTPUT = 4000

_MODEL, _USER = "you said:", "I said:"


class CutTurn(msgspec.Struct, frozen=True):
    """A turn that was stopped or failed. The CLI removes it from its history, so the model does not know it."""

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
    """A stored session as text, followed by the turns that were `cut`.

    None if it is empty, cannot be read, or does not fit into a prompt. `without`: leave out the last prompt and its
    turn if it is this prompt.
    """
    return as_text(_stored(session_id, options, environ), cut, without)


def with_more(text: str, cut: Sequence[CutTurn]) -> str | None:
    """A handover that the new session has not stored yet, followed by the turns that were cut since."""
    return _frame([*taken_apart(text)[0], *_cut_pieces(cut, ())])


def has_arrived(session_id: str, options: Options, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a stored session holds a conversation that was handed over to it."""
    messages = _stored(session_id, options, environ)
    return any(message.is_prompt and holds_record(message.text) for message in messages)


def _stored(session_id: str, options: Options, environ: Mapping[str, str] | None) -> list[Message]:
    variables = {**(os.environ if environ is None else environ), **options.env}
    try:
        return load(session_id, options.cwd, home=options.home, environ=variables).messages
    except SessionError:
        return []


def as_text(
    messages: Iterable[Message], cut: Sequence[CutTurn] = (), without: str | None = None
) -> str | None:
    """A conversation as text to send before a prompt; None if it is empty or does not fit."""
    stored = _pieces(entries(messages))
    last = max((at for at, piece in enumerate(stored) if piece.head == _USER), default=None)
    if without is not None and last is not None and stored[last].body.strip() == without.strip():
        del stored[last:]
    return _frame([*stored, *_cut_pieces(cut, stored)])


def _frame(conversation: Sequence[Piece]) -> str | None:
    pieces = [Piece(_sendable(piece.head), _sendable(piece.body)) for piece in conversation]
    if not pieces:
        return None
    mark = _mark_for(pieces)
    marked = [f"{mark} {piece.head}\n{piece.body}\n" for piece in pieces]
    text = "\n".join([FRAME.format(mark=mark), *marked, f"{mark} {LAST}\n"])
    return text if _fits(text) else None


def _pieces(transcript: Iterable[Entry]) -> list[Piece]:
    """The pieces in order. A conversation that was handed over to this session comes first, once."""
    before: list[Piece] = []
    own: list[Piece] = []
    for entry in transcript:
        if isinstance(entry, Prompt):
            earlier, words = taken_apart(entry.text)
            # A retried prompt was sent again with the same conversation before it.
            before = max(before, earlier, key=len)
            own.append(Piece(_USER, "\n".join([words, *_missing(entry)])))
        elif isinstance(entry, AgentText):
            own.append(Piece(_MODEL, entry.text))
        elif isinstance(entry, Tool):
            own += _tool_pieces(entry)
    return before + own


def _cut_pieces(cut: Sequence[CutTurn], stored: Sequence[Piece]) -> Iterator[Piece]:
    """The turns that were cut, except those whose prompt is in the session."""
    kept = [piece.body.strip() for piece in stored if piece.head == _USER]
    for cut_turn in cut:
        if cut_turn.prompt.strip() in kept:
            continue
        yield Piece(_USER, cut_turn.prompt)
        for turn in cut_turn.turns:
            if turn.text:
                yield Piece(_MODEL, turn.text)
            for tool in turn.tools:
                if tool.parent is None:
                    yield from _tool_pieces(tool)
        yield Piece("this turn was cut off here:", cut_turn.reason)


def _missing(prompt: Prompt) -> Iterator[str]:
    for media in prompt.media:
        yield f"[Here I gave you a file ({media.media_type}). It is not in this record.]"


def _tool_pieces(tool: Tool | ToolFinished) -> Iterator[Piece]:
    yield Piece(f"you called the tool {_one_line(tool.name)}:", _json(tool.input))
    how = tool.status if tool.exit_code is None else f"{tool.status}, exit code {tool.exit_code}"
    yield Piece(f"the result of {_one_line(tool.name)} ({how}):", _shorten(tool.output or tool.error or ""))


def _mark_for(pieces: list[Piece]) -> str:
    """A mark that occurs in no piece, so that no text of the conversation can end the record."""
    while True:
        mark = f"=={os.urandom(4).hex()}=="
        if not any(mark in piece.head or mark in piece.body for piece in pieces):
            return mark


def _shorten(output: str) -> str:
    """Remove the middle of a long output."""
    over = len(output) - _MAX_OUTPUT
    if over <= 0:
        return output
    half = _MAX_OUTPUT // 2
    return f"{output[:half]}\n[{over:,} characters are left out here]\n{output[-half:]}"


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "(the arguments cannot be shown)"


def _one_line(name: str) -> str:
    return " ".join(name.split()) or "(without a name)"


def _sendable(text: str) -> str:
    """Replace what a prompt must not contain: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _fits(text: str) -> bool:
    if len(text.encode()) > _SHARE * MAX_PROMPT_BYTES:
        return False
    return len(text.encode("utf-16-le")) // 2 <= _SHARE * MAX_PROMPT_UNITS
