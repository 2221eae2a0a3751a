"""A session that was made on ACP, made fit for a headless resume."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from geminids.errors import SessionError
from geminids.sessions.loading import read_file
from geminids.sessions.order import in_true_order
from geminids.sessions.write import answered_once
from geminids.wire.journal import Message
from geminids.wire.journal_replay import replay

__all__ = ["mend"]

# How the message begins that has the calls of a whole ACP session (core/src/services/chatRecordingService.ts).
_GATHERED = b'"type":"gemini","content":"","toolCalls":['


def mend(file: Path) -> bool:
    """Write the conversation anew at the end of its file, in its true order; False where there is no need.

    The CLI resumes such a session with all calls in the first answer that made one, and with their results there
    and once more at their places. The API takes no result without its call (400, "function response parts").
    Nothing is taken away: the file grows by a checkpoint as the CLI writes it. Only for a session that is held.
    """
    try:
        data = read_file(file)
        if file.suffix != ".jsonl" or _GATHERED not in data:
            return False
        told = replay(data.split(b"\n"))
        ordered = list(in_true_order(told.messages))
        if told.header is None or [*map(id, ordered)] == [*map(id, told.messages)]:
            return False
        _append(file, _checkpoint(list(answered_once(ordered))), whole=data.endswith(b"\n"))
    except (SessionError, OSError):
        return False  # the CLI resumes it as it is, or says why it cannot
    return True


def _checkpoint(messages: list[Message]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    changes = {"messages": [msgspec.Raw(one.raw) for one in messages], "lastUpdated": now}
    return msgspec.json.encode({"$set": changes}) + b"\n"


def _append(file: Path, line: bytes, *, whole: bool) -> None:
    """One write, behind whatever a process that was killed has left of its last line."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab", buffering=0) as out:
        out.write(line if whole else b"\n" + line)
