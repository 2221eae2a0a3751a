"""`geminids sessions export`: the formats, and a file that is written whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from geminids.cli.sessions_lookup import Opened
from geminids.errors import GeminidsError
from geminids.sessions.order import in_true_order
from geminids.sessions.transcript import entries
from geminids.views.amounts import count
from geminids.views.safe import clean
from geminids.wire.journal_stream import open_journal, subagent_files

__all__ = ["exported", "facts_of", "may_write", "title_of", "write_out"]


def title_of(opened: Opened) -> str:
    return opened.info.title or f"Session {opened.info.id}"


def facts_of(opened: Opened) -> str:
    """Id, time and length of a session in one line; nothing of this machine."""
    info = opened.info
    told = [info.id]
    if info.started is not None:
        told.append(info.started.strftime("%Y-%m-%d %H:%M UTC"))
    if info.messages is not None:
        told.append(count(info.messages, "message"))
    return " · ".join(told)


def exported(opened: Opened, form: str) -> Iterator[bytes]:
    """A session in one of the formats, piece by piece."""
    if form == "claude":
        from geminids.dialects import claude

        return (msgspec.json.encode(one) + b"\n" for one in claude.messages(opened.messages))
    if form == "claude-jsonl":
        from geminids.dialects.claude.stored import transcript

        return transcript(opened, cwd=clean(opened.info.project or ""))
    if form == "atif":
        from geminids.dialects.atif.document import trajectory

        return trajectory(opened.messages, session_id=opened.header.session_id, agents=opened.agents)
    return _folded(opened) if form == "json" else _document(opened, form)


def _document(opened: Opened, form: str) -> Iterator[bytes]:
    shown = entries(opened.messages, opened.agents)
    title, facts = title_of(opened), facts_of(opened)
    if form == "html":
        from geminids.views.transcript_html import html

        pieces = html(title, facts, shown)
    else:
        from geminids.views.transcript_markdown import markdown

        pieces = markdown(title, facts, shown)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _folded(opened: Opened) -> Iterator[bytes]:
    """The conversation as it stands at the end, in the form of the CLI's older session files."""
    yield from _conversation(
        opened.header.fields, (one.raw for one in in_true_order(opened.messages)), last=b""
    )
    files = subagent_files(Path(opened.info.file), opened.header.session_id)
    for number, file in enumerate(files):
        journal = open_journal(file)
        fields = journal.header.fields if journal.header else {"sessionId": file.stem}
        yield b"," if number else b',"subagents":[\n'
        yield from _conversation(fields, (one.raw for one in in_true_order(journal.messages)), last=b"}")
    yield b"]}\n" if files else b"}\n"


def _conversation(fields: dict[str, Any], messages: Iterable[bytes], *, last: bytes) -> Iterator[bytes]:
    yield msgspec.json.encode(fields)[:-1] + (b"," if fields else b"") + b'"messages":['
    for number, message in enumerate(messages):
        yield (b",\n" if number else b"\n") + message
    yield b"\n]" + last


def may_write(out: str, *, force: bool) -> Path:
    """The file to write, asked before anything is read; raises where something is in the way."""
    target = Path(os.path.realpath(out))
    try:
        found = target.stat()
    except FileNotFoundError:
        return target
    except (OSError, ValueError) as error:
        raise _cannot(out, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise GeminidsError(f"{out} is there, and is not a file", hint="Name another one with --out.")
    if not force:
        raise GeminidsError(f"{out} is there already", hint="--force writes over it.")
    return target


def write_out(pieces: Iterable[bytes], target: Path | None, *, force: bool = False) -> None:
    """Write to stdout, or into a file that only its owner can read and that appears when it is whole."""
    if target is None:
        _print(pieces)
        return
    draft = target.parent / f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise _cannot(str(target), error) from None
    try:
        with os.fdopen(fd, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(fd)
        _publish(draft, target, force)
    except OSError as error:
        raise _cannot(str(target), error) from None
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, target: Path, force: bool) -> None:
    if force:
        os.replace(draft, target)
        return
    try:
        os.link(draft, target)  # fails where somebody was faster
    except FileExistsError:
        raise GeminidsError(f"{target} is there already", hint="--force writes over it.") from None
    except OSError:
        os.rename(draft, target)  # a file system without links


def _print(pieces: Iterable[bytes]) -> None:
    out = sys.stdout
    if out is None:
        raise click.UsageError("stdout is closed: name a file with --out.")
    for piece in pieces:
        if out.isatty():
            text = clean(piece.decode("utf-8", "replace"))
            _put(out.write, text.encode(out.encoding, "replace").decode(out.encoding))
        else:
            _put(out.buffer.write, piece)
    _put(out.flush)


def _put(write: Callable[..., object], *said: object) -> None:
    try:
        write(*said)
    except BrokenPipeError:
        # Whoever read us has gone. Not BrokenPipeError: click makes exit code 1 of that one.
        raise click.exceptions.Exit(141) from None
    except OSError as error:
        raise GeminidsError(f"stdout cannot be written: {error.strerror}") from None


def _cannot(out: str, error: Exception) -> GeminidsError:
    why = getattr(error, "strerror", None) or str(error)
    return GeminidsError(f"{out} cannot be written: {why}", hint="Name another file with --out.")
