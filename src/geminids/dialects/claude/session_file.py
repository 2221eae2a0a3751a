"""A conversation as Claude Code stores one: a straight chain of entries, one JSON object a line."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from geminids.dialects.claude.conversation import (
    Block,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    message,
    milliseconds,
)
from geminids.gemini.protocol.journal.records import Header, Message, Tokens
from geminids.sessions.repair.reorder_acp import in_true_order

__all__ = ["transcript"]

# The release of Claude Code whose files these are like.
_VERSION = "2.1.240"
_NO_RESULT = "(the tool gave no result)"


class Session(Protocol):
    """A conversation with its header: a `Conversation` or a `Journal`."""

    @property
    def header(self) -> Header | None: ...

    @property
    def messages(self) -> Iterable[Message]: ...


def transcript(
    session: Session, *, cwd: str = "", git_branch: str = "", new_id: Callable[[], uuid.UUID] = uuid.uuid4
) -> Iterator[bytes]:
    """The lines of `<session uuid>.jsonl`; the session keeps its id where that is a uuid."""
    own = session.header.session_id if session.header else ""
    chain = _Chain(_session_id(own, new_id), cwd, git_branch, new_id)
    told: set[str] = set()
    for said in in_true_order(session.messages):
        yield from _entries(said, chain, told)
    title = session.header.summary if session.header else None
    if title:
        yield _line({"type": "custom-title", "customTitle": title, "sessionId": chain.session_id})


def _session_id(own: str, new_id: Callable[[], uuid.UUID]) -> str:
    try:
        return str(uuid.UUID(own))
    except ValueError:
        return str(new_id())


class _Chain:
    """What each entry needs of the ones before it: its parent, and a time that is not before theirs."""

    def __init__(self, session_id: str, cwd: str, branch: str, new_id: Callable[[], uuid.UUID]) -> None:
        self.session_id = session_id
        self._context = {"userType": "external", "cwd": cwd, "version": _VERSION, "gitBranch": branch}
        self._new_id = new_id
        self._parent: str | None = None
        self._latest = 0

    def entry(self, kind: str, timestamp: str, fields: dict[str, Any]) -> bytes:
        self._latest = max(self._latest, milliseconds(timestamp))
        when = datetime.fromtimestamp(self._latest / 1000, UTC).isoformat(timespec="milliseconds")
        own = str(self._new_id())
        line = {
            "parentUuid": self._parent,
            "isSidechain": False,
            **self._context,
            "sessionId": self.session_id,
            "type": kind,
            **fields,
            "uuid": own,
            "timestamp": when.replace("+00:00", "Z"),
        }
        self._parent = own
        return _line(line)


def _entries(said: Message, chain: _Chain, told: set[str]) -> Iterator[bytes]:
    if said.type == "gemini":
        yield from _answer(said, chain, told)
    elif said.type == "user":
        yield from _request(said, chain)
    elif not said.text.strip():
        return
    elif said.type == "error":
        content = _of_model(f"msg_{said.id}", "<synthetic>", [Text(said.text)], None)
        yield chain.entry("assistant", said.timestamp, {"message": content, "isApiErrorMessage": True})
    else:
        fields = {"subtype": "informational", "content": said.text, "level": said.type or "info"}
        yield chain.entry("system", said.timestamp, fields)


def _request(said: Message, chain: _Chain) -> Iterator[bytes]:
    """What the user said. Results stand behind their calls already: a second time they would answer none."""
    if said.is_injected:
        return
    blocks = [block for block in message(said).content if not isinstance(block, str | ToolResult)]
    if not blocks:
        return
    words: Any = blocks
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        words = blocks[0].text
    yield chain.entry("user", said.timestamp, {"message": {"role": "user", "content": words}})


def _answer(said: Message, chain: _Chain, told: set[str]) -> Iterator[bytes]:
    """Thinking and text first, as the model gave them; then each call with its result behind it."""
    content = message(said).content
    blocks: list[Block] = list(content) if not isinstance(content, str) else []
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    spoken: list[Block] = [block for block in blocks if isinstance(block, Thinking)]
    spoken += [block for block in blocks if not isinstance(block, ToolUse | ToolResult | Thinking)]
    uses = {block.id: block for block in blocks if isinstance(block, ToolUse) and block.id not in told}
    told.update(uses)
    tokens = said.tokens
    for number, use in enumerate([*uses.values()] or [None]):
        together: list[Block] = spoken if use is None else [*spoken, use]
        if not together:
            return
        # An id of its own, and tokens only once: right for readers that count by id and for those that add up.
        own = f"msg_{said.id}" if number == 0 else f"msg_{said.id}_{number}"
        body = _of_model(own, said.model or "gemini", together, tokens)
        yield chain.entry("assistant", said.timestamp, {"message": body})
        spoken, tokens = [], None
        if use is not None:
            result = results.get(use.id) or ToolResult(use.id, _NO_RESULT, True)
            yield chain.entry("user", said.timestamp, {"message": {"role": "user", "content": [result]}})


def _of_model(message_id: str, model: str, blocks: list[Block], tokens: Tokens | None) -> dict[str, Any]:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_stored(block) for block in blocks],
        "stop_reason": "tool_use" if isinstance(blocks[-1], ToolUse) else "end_turn",
        "stop_sequence": None,
        "usage": _usage(tokens or Tokens()),
    }


def _stored(block: Block) -> Any:
    if isinstance(block, Thinking):
        return {"type": "thinking", "thinking": block.thinking, "signature": ""}
    return block


def _usage(tokens: Tokens) -> dict[str, int]:
    return {
        "input_tokens": max(tokens.input - tokens.cached, 0),
        "output_tokens": tokens.output + tokens.thoughts,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
    }


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
