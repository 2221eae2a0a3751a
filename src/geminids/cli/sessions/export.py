"""`geminids sessions export`: write a session in another format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from geminids.cli.sessions.lookup import OpenSession
from geminids.dialects import claude
from geminids.dialects.atif.document import trajectory
from geminids.dialects.claude.session_file import transcript as claude_transcript
from geminids.gemini.protocol.journal.stream import open_journal, subagent_files
from geminids.sessions.repair.reorder_acp import in_true_order
from geminids.sessions.transcript import entries
from geminids.views.amounts import count
from geminids.views.sanitize import clean
from geminids.views.transcript.markdown import markdown

__all__ = ["export_session", "session_facts", "session_title"]


def session_title(session: OpenSession) -> str:
    """Return the title of a session; if the session has no title, its id."""
    return session.info.title or f"Session {session.info.id}"


def session_facts(session: OpenSession) -> str:
    """Return the id, the start time and the number of messages of a session in one line.

    The line contains no path, because an exported session may be published.
    """
    info = session.info
    facts = [info.id]
    if info.started is not None:
        facts.append(info.started.strftime("%Y-%m-%d %H:%M UTC"))
    if info.messages is not None:
        facts.append(count(info.messages, "message"))
    return " · ".join(facts)


def export_session(session: OpenSession, form: str) -> Iterator[bytes]:
    """Convert a session to the format `form`, and yield the output in pieces."""
    if form == "claude":
        return (msgspec.json.encode(message) + b"\n" for message in claude.messages(session.messages))
    if form == "claude-jsonl":
        return claude_transcript(session, cwd=clean(session.info.project or ""))
    if form == "atif":
        return trajectory(session.messages, session_id=session.header.session_id, agents=session.agents)
    return _folded(session) if form == "json" else _document(session, form)


def _document(session: OpenSession, form: str) -> Iterator[bytes]:
    transcript = entries(session.messages, session.agents)
    title, facts = session_title(session), session_facts(session)
    if form == "html":
        from geminids.views.transcript.html import html  # imported late: it loads the Markdown parser

        pieces = html(title, facts, transcript)
    else:
        pieces = markdown(title, facts, transcript)
    return (piece.encode("utf-8", "replace") for piece in pieces)


def _folded(session: OpenSession) -> Iterator[bytes]:
    """Encode a session as one JSON object, which is the format of the CLI's older session files.

    A newer session file is a list of messages and of changes to these messages. The JSON object
    contains the messages after all changes, and the messages of the subagents.
    """
    yield from _conversation(
        session.header.fields, (message.raw for message in in_true_order(session.messages)), last=b""
    )
    files = subagent_files(Path(session.info.file), session.header.session_id)
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
