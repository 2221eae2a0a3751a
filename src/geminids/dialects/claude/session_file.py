"""Convert a stored conversation to a session file of Claude Code.

Each line is an entry: a JSON object that contains the id of the previous entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from geminids.dialects.claude.conversation import (
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnifiedContent,
    message,
    milliseconds,
)
from geminids.gemini.protocol.journal.records import Header, StoredMessage, StoredTokens
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = ["transcript"]

# The release of Claude Code that writes files in this format.
_VERSION = "2.1.240"
_NO_RESULT = "(the tool gave no result)"


class SessionSource(Protocol):
    """A stored conversation and its header, such as a `StoredConversation` or a `JournalFile`."""

    @property
    def header(self) -> Header | None: ...

    @property
    def messages(self) -> Iterable[StoredMessage]: ...


def transcript(
    session: SessionSource,
    *,
    cwd: str = "",
    git_branch: str = "",
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Iterator[bytes]:
    """Yield the lines of a session file, which Claude Code names `<session id>.jsonl`.

    Claude Code accepts only UUIDs as session ids. If the session's id is a UUID, it is kept;
    otherwise `new_id` creates one. `cwd` and `git_branch` are written into each line.
    """
    own_id = session.header.session_id if session.header else ""
    chain = _Chain(_session_id(own_id, new_id), cwd, git_branch, new_id)
    written: set[str] = set()
    for record in in_true_order(session.messages):
        yield from _entries(record, chain, written)
    title = session.header.summary if session.header else None
    if title:
        yield _line({"type": "custom-title", "customTitle": title, "sessionId": chain.session_id})


def _session_id(own_id: str, new_id: Callable[[], uuid.UUID]) -> str:
    try:
        return str(uuid.UUID(own_id))
    except ValueError:
        return str(new_id())


class _Chain:
    """Makes the entries of a session file. Each entry contains the id of the previous entry. The
    time of an entry is never earlier than the time of the previous entry."""

    def __init__(self, session_id: str, cwd: str, branch: str, new_id: Callable[[], uuid.UUID]) -> None:
        self.session_id = session_id
        self._context = {"userType": "external", "cwd": cwd, "version": _VERSION, "gitBranch": branch}
        self._new_id = new_id
        self._parent: str | None = None
        self._latest = 0

    def entry(self, kind: str, timestamp: str, fields: dict[str, Any]) -> bytes:
        self._latest = max(self._latest, milliseconds(timestamp) or 0)
        time = datetime.fromtimestamp(self._latest / 1000, UTC).isoformat(timespec="milliseconds")
        entry_id = str(self._new_id())
        line = {
            "parentUuid": self._parent,
            "isSidechain": False,
            **self._context,
            "sessionId": self.session_id,
            "type": kind,
            **fields,
            "uuid": entry_id,
            "timestamp": time.replace("+00:00", "Z"),
        }
        self._parent = entry_id
        return _line(line)


def _entries(record: StoredMessage, chain: _Chain, written: set[str]) -> Iterator[bytes]:
    if record.type == "gemini":
        yield from _answer(record, chain, written)
    elif record.type == "user":
        yield from _request(record, chain)
    elif not record.text.strip():
        return
    elif record.type == "error":
        content = _model_message(f"msg_{record.id}", "<synthetic>", [Text(record.text)], None)
        yield chain.entry("assistant", record.timestamp, {"message": content, "isApiErrorMessage": True})
    else:
        fields = {"subtype": "informational", "content": record.text, "level": record.type or "info"}
        yield chain.entry("system", record.timestamp, fields)


def _request(record: StoredMessage, chain: _Chain) -> Iterator[bytes]:
    """Yield an entry with the text and the images of a user's message; nothing if the message has
    neither.

    Tool results in the message are omitted, because `_answer` writes each result after its call.
    Messages that the CLI wrote in the user's name are skipped.
    """
    if record.is_injected:
        return
    blocks = [block for block in message(record).content if not isinstance(block, str | ToolResult)]
    if not blocks:
        return
    content: Any = blocks
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        content = blocks[0].text
    yield chain.entry("user", record.timestamp, {"message": {"role": "user", "content": content}})


def _answer(record: StoredMessage, chain: _Chain, written: set[str]) -> Iterator[bytes]:
    """Yield the entries of an answer. Thinking and text come first, then each call, followed by its
    result.

    `written` contains the ids of calls that already have an entry. Such calls are skipped. The ids
    of the other calls are added to `written`.
    """
    content = message(record).content
    blocks: list[UnifiedContent] = list(content) if not isinstance(content, str) else []
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    leading: list[UnifiedContent] = [block for block in blocks if isinstance(block, Thinking)]
    leading += [block for block in blocks if not isinstance(block, ToolUse | ToolResult | Thinking)]
    uses = {block.id: block for block in blocks if isinstance(block, ToolUse) and block.id not in written}
    written.update(uses)
    tokens = record.tokens
    for number, use in enumerate([*uses.values()] or [None]):
        entry: list[UnifiedContent] = leading if use is None else [*leading, use]
        if not entry:
            return
        # Some readers add up the tokens of all entries, others count each message id once. Both
        # get the same sum, because each entry has its own id and only the first has the tokens.
        message_id = f"msg_{record.id}" if number == 0 else f"msg_{record.id}_{number}"
        body = _model_message(message_id, record.model or "gemini", entry, tokens)
        yield chain.entry("assistant", record.timestamp, {"message": body})
        leading, tokens = [], None
        if use is not None:
            result = results.get(use.id) or ToolResult(use.id, _NO_RESULT, True)
            yield chain.entry("user", record.timestamp, {"message": {"role": "user", "content": [result]}})


def _model_message(
    message_id: str, model: str, blocks: list[UnifiedContent], tokens: StoredTokens | None
) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_claude_block(block) for block in blocks],
        "stop_reason": "tool_use" if isinstance(blocks[-1], ToolUse) else "end_turn",
        "stop_sequence": None,
        "usage": _usage(tokens or StoredTokens()),
    }


def _claude_block(block: UnifiedContent) -> Any:
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": ""}
    return block


def _usage(tokens: StoredTokens) -> dict[str, int]:
    return {
        "input_tokens": max(tokens.input - tokens.cached, 0),
        "output_tokens": tokens.output + tokens.thoughts,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
    }


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
