"""Write a conversation as one text, so that a new session can continue it.

This text is called a handover.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from geminids.errors import SessionError
from geminids.events.model import ToolFinished, Turn
from geminids.gemini.protocol.journal.records import StoredMessage
from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, MAX_PROMPT_UNITS
from geminids.options import Options
from geminids.sessions.handover_format import FRAME, LAST, Piece, has_handover, split_handover
from geminids.sessions.loader import load
from geminids.sessions.transcript import PromptEntry, TextEntry, ToolEntry, TranscriptEntry, entries

__all__ = ["CutTurn", "append_cut_turns", "is_handover_stored", "render_conversation", "render_session"]

# A handover may use this share of the largest possible prompt. The new prompt and the agent's work
# need the rest.
_SHARE = 0.75
_MAX_OUTPUT = 4000

_MODEL, _USER = "you wrote:", "I wrote:"


class CutTurn(msgspec.Struct, frozen=True):
    """A turn that was stopped or failed.

    The CLI removes stopped and failed turns from its history, so the model does not know them.
    """

    prompt: str
    turns: tuple[Turn, ...]
    reason: str


def render_session(
    session_id: str,
    options: Options,
    environ: Mapping[str, str] | None = None,
    cut: Sequence[CutTurn] = (),
    without: str | None = None,
) -> str | None:
    """Return a stored session as text, followed by the turns in `cut`.

    `cut` are turns that were stopped or failed. `without` is a prompt: if it is the last prompt of
    the session, its turn is omitted. Return None if the session is empty, cannot be read, or is too
    long for a prompt.
    """
    return render_conversation(_stored(session_id, options, environ), cut, without)


def append_cut_turns(text: str, cut: Sequence[CutTurn]) -> str | None:
    """Add the turns in `cut` to a handover, and return the new handover.

    A handover is an earlier conversation as text. `text` is a handover that the new session has not
    stored yet. `cut` are turns that were stopped or failed. Return None if the result is too long
    for a prompt.
    """
    return _frame([*split_handover(text)[0], *_cut_pieces(cut, ())])


def is_handover_stored(session_id: str, options: Options, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the file of a session contains a handover (an earlier conversation as text)."""
    messages = _stored(session_id, options, environ)
    return any(message.is_prompt and has_handover(message.text) for message in messages)


def _stored(session_id: str, options: Options, environ: Mapping[str, str] | None) -> list[StoredMessage]:
    variables = {**(os.environ if environ is None else environ), **options.env}
    try:
        return load(session_id, options.cwd, home=options.home, environ=variables).messages
    except SessionError:
        return []


def render_conversation(
    messages: Iterable[StoredMessage], cut: Sequence[CutTurn] = (), without: str | None = None
) -> str | None:
    """Return a conversation as text to send before a prompt.

    `cut` are turns that were stopped or failed; they are added at the end. `without` is a prompt:
    if it is the last prompt of the conversation, its turn is omitted. Return None if the text would
    be empty or too long for a prompt.
    """
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


def _pieces(transcript: Iterable[TranscriptEntry]) -> list[Piece]:
    """Convert a transcript to the pieces of a handover. Each piece is a heading and a text.

    A prompt of the transcript can contain an earlier handover. The pieces of the earlier handover
    then come first, and only once.
    """
    before: list[Piece] = []
    own: list[Piece] = []
    for entry in transcript:
        if isinstance(entry, PromptEntry):
            earlier, prompt = split_handover(entry.text)
            # If a prompt was sent twice, both copies contain the same handover.
            before = max(before, earlier, key=len)
            own.append(Piece(_USER, "\n".join([prompt, *_missing_files(entry)])))
        elif isinstance(entry, TextEntry):
            own.append(Piece(_MODEL, entry.text))
        elif isinstance(entry, ToolEntry):
            own += _tool_pieces(entry)
    return before + own


def _cut_pieces(cut: Sequence[CutTurn], stored: Sequence[Piece]) -> Iterator[Piece]:
    """Convert turns that were stopped or failed to pieces of text, each with a heading.

    `cut` are the turns, and `stored` are the pieces of the stored conversation. A turn is omitted
    if `stored` contains its prompt.
    """
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


def _missing_files(prompt: PromptEntry) -> Iterator[str]:
    for media in prompt.media:
        yield f"[Here I gave you a file ({media.media_type}). It is not in this record.]"


def _tool_pieces(tool: ToolEntry | ToolFinished) -> Iterator[Piece]:
    yield Piece(f"you called the tool {_one_line(tool.name)}:", _json(tool.input))
    status = tool.status if tool.exit_code is None else f"{tool.status}, exit code {tool.exit_code}"
    yield Piece(
        f"the result of {_one_line(tool.name)} ({status}):", _shorten(tool.output or tool.error or "")
    )


def _mark_for(pieces: list[Piece]) -> str:
    """Return a random mark that occurs in no piece.

    Each heading of the handover starts with the mark. So no text of the conversation can look like
    a heading.
    """
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
    """Replace NUL characters and lone surrogates, which a prompt must not contain."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _fits(text: str) -> bool:
    if len(text.encode()) > _SHARE * MAX_PROMPT_BYTES:
        return False
    return len(text.encode("utf-16-le")) // 2 <= _SHARE * MAX_PROMPT_UNITS
