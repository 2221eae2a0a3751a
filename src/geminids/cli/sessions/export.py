"""`geminids sessions export`: write a session in another format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from geminids.cli.sessions.lookup import Opened
from geminids.gemini.protocol.journal.stream import open_journal, subagent_files
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.transcript import entries
from geminids.views.amounts import count
from geminids.views.sanitize import clean

__all__ = ["export_session", "facts_of", "title_of"]


def title_of(opened: Opened) -> str:
    return opened.info.title or f"Session {opened.info.id}"


def facts_of(opened: Opened) -> str:
    """Id, time and length of a session in one line, without paths of this machine."""
    info = opened.info
    facts = [info.id]
    if info.started is not None:
        facts.append(info.started.strftime("%Y-%m-%d %H:%M UTC"))
    if info.messages is not None:
        facts.append(count(info.messages, "message"))
    return " · ".join(facts)


def export_session(opened: Opened, form: str) -> Iterator[bytes]:
    """Encode a session in the given format, piece by piece."""
    if form == "claude":
        from geminids.dialects import claude

        return (msgspec.json.encode(message) + b"\n" for message in claude.messages(opened.messages))
    if form == "claude-jsonl":
        from geminids.dialects.claude.session_file import transcript

        return transcript(opened, cwd=clean(opened.info.project or ""))
    if form == "atif":
        from geminids.dialects.atif.document import trajectory

        return trajectory(opened.messages, session_id=opened.header.session_id, agents=opened.agents)
    return _folded(opened) if form == "json" else _document(opened, form)


def _document(opened: Opened, form: str) -> Iterator[bytes]:
    transcript = entries(opened.messages, opened.agents)
    title, facts = title_of(opened), facts_of(opened)
    if form == "html":
        from geminids.views.transcript.html import html

        pieces = html(title, facts, transcript)
    else:
        from geminids.views.transcript.markdown import markdown

        pieces = markdown(title, facts, transcript)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _folded(opened: Opened) -> Iterator[bytes]:
    """The final conversation, in the format of the CLI's older session files."""
    yield from _conversation(
        opened.header.fields, (message.raw for message in in_true_order(opened.messages)), last=b""
    )
    files = subagent_files(Path(opened.info.file), opened.header.session_id)
    for number, file in enumerate(files):
        journal = open_journal(file)
        fields = journal.header.fields if journal.header else {"sessionId": file.stem}
        yield b"," if number else b',"subagents":[\n'
        messages = (message.raw for message in in_true_order(journal.messages))
        yield from _conversation(fields, messages, last=b"}")
    yield b"]}\n" if files else b"}\n"


def _conversation(fields: dict[str, Any], messages: Iterable[bytes], *, last: bytes) -> Iterator[bytes]:
    yield msgspec.json.encode(fields)[:-1] + (b"," if fields else b"") + b'"messages":['
    for number, message in enumerate(messages):
        yield (b",\n" if number else b"\n") + message
    yield b"\n]" + last
