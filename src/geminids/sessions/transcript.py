"""Convert a stored conversation to a list of entries that can be shown to a user.

An entry is a prompt, a thought, a text of the model, a tool call with its result, a remark of the
CLI, or the end of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from geminids.events.model import Change
from geminids.events.translate.journal import tool_record_of
from geminids.gemini.protocol import tool_results as tools
from geminids.gemini.protocol.journal.records import StoredMessage, StoredToolCall
from geminids.gemini.protocol.journal.stream import open_journal, subagent_files
from geminids.sessions.message_parts import calls_of, exchanges, thoughts_of

__all__ = [
    "Agents",
    "Media",
    "PromptEntry",
    "RemarkEntry",
    "TextEntry",
    "ThoughtEntry",
    "ToolEntry",
    "TranscriptEntry",
    "TurnEnd",
    "entries",
]

_CANCELLED = "Command was cancelled by user"
# The result of a tool call that the user of an ACP client denied (cli/src/acp/acpSession.ts of
# Gemini CLI).
_REFUSED = re.compile(r'Tool "[^"]*" was canceled by the user\.')


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    message: str = ""
    """The id of the message that contains this entry. `sessions fork --at` accepts it."""
    at: str = ""
    depth: int = 0
    """0 for an entry of the session itself, 1 for one of its subagents, 2 for one of a subagent's own
    subagents, and so on."""


class Media(msgspec.Struct, frozen=True):
    """An image or another file in a prompt. `data` is encoded in base64."""

    media_type: str
    data: str


class PromptEntry(_Entry, tag="prompt", frozen=True, kw_only=True):
    text: str
    media: tuple[Media, ...] = ()


class ThoughtEntry(_Entry, tag="thought", frozen=True, kw_only=True):
    subject: str
    text: str = ""


class TextEntry(_Entry, tag="text", frozen=True, kw_only=True):
    text: str


class ToolEntry(_Entry, tag="tool", frozen=True, kw_only=True):
    id: str
    name: str
    title: str
    input: dict[str, Any] = {}
    status: Literal["ok", "failed", "denied", "cancelled", "unfinished"]
    output: str | None = None
    error: str | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] = ()
    agent: str | None = None


class RemarkEntry(_Entry, tag="remark", frozen=True, kw_only=True):
    """An entry for a message that comes neither from the user nor from the model. Usually it comes
    from the CLI. `level` is `info`, `warning` or `error`.
    """

    level: str
    text: str


class TurnEnd(_Entry, tag="turn", frozen=True, kw_only=True):
    """The end of a turn in a transcript, with the tokens that the turn used. A turn begins with a
    prompt and ends before the next prompt.

    Requests whose tokens are unknown are not included in any of the numbers, not even in
    `requests`.
    """

    models: tuple[str, ...] = ()
    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    thinking: int = 0
    tool: int = 0


TranscriptEntry = PromptEntry | ThoughtEntry | TextEntry | ToolEntry | RemarkEntry | TurnEnd


class Agents:
    """Finds the session files of the subagents that a session started. `take` returns each file
    only once.
    """

    def __init__(self, session_file: Path, session_id: str) -> None:
        self._files = {file.stem: file for file in subagent_files(session_file, session_id)}

    def take(self, agent: str | None) -> Path | None:
        return self._files.pop(agent, None) if agent else None

    def rest(self) -> Iterator[str]:
        """Yield the ids of the subagents whose files have not been returned by `take`."""
        yield from list(self._files)


def entries(messages: Iterable[StoredMessage], agents: Agents | None = None) -> Iterator[TranscriptEntry]:
    """Yield the entries of a conversation's transcript, such as prompts, texts and tool calls.

    If `agents` is given, the entries of each subagent follow the tool call that started the
    subagent. If this call is unknown, the entries of the subagent come at the end, after a remark.

    >>> from geminids.gemini.protocol.journal.replay import replay
    >>> messages = replay([b'{"id":"m1","type":"user","content":"hello"}']).messages
    >>> [entry.text for entry in entries(messages)]
    ['hello']
    """
    yield from _entries(messages, agents, 0)
    for agent in agents.rest() if agents else ():
        yield RemarkEntry(level="info", text=f"Subagent {agent} (the tool call that started it is unknown):")
        yield from _subagent_entries(agent, agents, 1)


def _entries(
    messages: Iterable[StoredMessage], agents: Agents | None, depth: int
) -> Iterator[TranscriptEntry]:
    turn = _Turn(depth)
    for message, answers in exchanges(messages):
        common: dict[str, Any] = {"message": message.id, "at": message.timestamp, "depth": depth}
        if message.is_prompt:
            yield from turn.end()
            yield PromptEntry(text=message.text, media=tuple(_media(message.content)), **common)
        elif message.type == "gemini":
            turn.add(message)
            yield from _answer(message, common)
        elif message.type != "user" and message.text.strip():
            yield RemarkEntry(level=message.type or "info", text=message.text, **common)
        for call in calls_of(message, answers):
            yield _tool(call, common)
            yield from _subagent_entries(call.agent_id, agents, depth + 1)
    yield from turn.end()


def _subagent_entries(agent: str | None, agents: Agents | None, depth: int) -> Iterator[TranscriptEntry]:
    file = agents.take(agent) if agents else None
    if file is None:
        return
    try:
        yield from _entries(open_journal(file).messages, agents, depth)
    except OSError as error:
        why = error.strerror or str(error)
        yield RemarkEntry(level="error", text=f"Cannot read the subagent's file: {why}", depth=depth)


def _tool(call: StoredToolCall, common: dict[str, Any]) -> ToolEntry:
    record = tool_record_of(call)
    output, error = (record.output, record.error) if record else (None, None)
    if output is None and error is None and isinstance(shown := call.result_display, str) and shown:
        output = shown
    return ToolEntry(
        id=call.id,
        name=call.name,
        title=tools.title_of(call.name, call.args) or "tool",
        input=call.args,
        status=_status(call, output, error),
        output=output,
        error=error,
        exit_code=record.exit_code if record else None,
        changes=record.changes if record else (),
        agent=call.agent_id,
        **common,
    )


def _status(
    call: StoredToolCall, output: str | None, error: str | None
) -> Literal["ok", "failed", "denied", "cancelled", "unfinished"]:
    if call.status not in ("success", "error", "cancelled"):
        return "unfinished"
    if call.status == "success" and (output or "").startswith(_CANCELLED):
        return "cancelled"
    if call.status == "error" and _REFUSED.fullmatch(error or ""):
        return "denied"
    return tools.status_of(call.status, None, error, output)


def _answer(message: StoredMessage, common: dict[str, Any]) -> Iterator[TranscriptEntry]:
    """Yield the thoughts and the text of a model's answer as entries. The tool calls of the answer
    are not included. `common` contains the fields that all these entries get.
    """
    for subject, text in thoughts_of(message):
        yield ThoughtEntry(subject=subject, text=text, **common)
    if message.text.strip():
        yield TextEntry(text=message.text, **common)


def _media(content: Any) -> Iterator[Media]:
    for part in content if isinstance(content, list) else ():
        data = part.get("inlineData") if isinstance(part, dict) else None
        if isinstance(data, dict) and isinstance(data.get("mimeType"), str):
            encoded = data.get("data")
            yield Media(data["mimeType"], encoded if isinstance(encoded, str) else "")


class _Turn:
    """Adds up the tokens of the current turn of a conversation."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._clear()

    def _clear(self) -> None:
        self._models: dict[str, None] = {}
        self._counts: dict[str, Any] = dict.fromkeys(
            ("requests", "input", "cached", "output", "thinking", "tool"), 0
        )
        self._last: StoredMessage | None = None

    def add(self, message: StoredMessage) -> None:
        self._last = message
        if message.model:
            self._models[message.model] = None
        if (tokens := message.tokens) is not None:
            used = (1, tokens.input, tokens.cached, tokens.output, tokens.thoughts, tokens.tool)
            for name, number in zip(self._counts, used, strict=True):
                self._counts[name] += number

    def end(self) -> Iterator[TurnEnd]:
        if self._last is not None:
            common: dict[str, Any] = {
                "message": self._last.id,
                "at": self._last.timestamp,
                "depth": self._depth,
            }
            yield TurnEnd(models=tuple(self._models), **self._counts | common)
        self._clear()
