"""A stored conversation as it is read: prompts, thoughts, text, tools with what became of them, and the tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from geminids.events.model import Change
from geminids.events.translate.journal import truth_of
from geminids.gemini.protocol import tool_results as tools
from geminids.gemini.protocol.journal.records import Message, ToolCall
from geminids.gemini.protocol.journal.stream import open_journal, subagent_files
from geminids.sessions.calls import calls_of, exchanges, thoughts_of

__all__ = [
    "Agents",
    "Entry",
    "Media",
    "Prompt",
    "Remark",
    "Said",
    "Thought",
    "Tool",
    "TurnEnd",
    "entries",
]

_CANCELLED = "Command was cancelled by user"
# What the model is told where the user of an ACP client said no (cli/src/acp/acpSession.ts).
_REFUSED = re.compile(r'Tool "[^"]*" was canceled by the user\.')


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    message: str = ""
    """The id of the message that it is of: what `sessions fork --at` takes."""
    at: str = ""
    depth: int = 0
    """0 in the session itself, 1 in its subagents."""


class Media(msgspec.Struct, frozen=True):
    """An image or another file within a prompt, in base64."""

    media_type: str
    data: str


class Prompt(_Entry, tag="prompt", frozen=True, kw_only=True):
    text: str
    media: tuple[Media, ...] = ()


class Thought(_Entry, tag="thought", frozen=True, kw_only=True):
    subject: str
    text: str = ""


class Said(_Entry, tag="text", frozen=True, kw_only=True):
    text: str


class Tool(_Entry, tag="tool", frozen=True, kw_only=True):
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


class Remark(_Entry, tag="remark", frozen=True, kw_only=True):
    """What the CLI had to say: `info`, `warning` or `error`."""

    level: str
    text: str


class TurnEnd(_Entry, tag="turn", frozen=True, kw_only=True):
    """What a turn took, from a prompt to the next one. A request whose tokens are not known is not counted."""

    models: tuple[str, ...] = ()
    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    thinking: int = 0
    tool: int = 0


Entry = Prompt | Thought | Said | Tool | Remark | TurnEnd


class Agents:
    """The files of a session's subagents; each is taken once."""

    def __init__(self, session_file: Path, session_id: str) -> None:
        self._files = {file.stem: file for file in subagent_files(session_file, session_id)}

    def take(self, agent: str | None) -> Path | None:
        return self._files.pop(agent, None) if agent else None

    def rest(self) -> Iterator[str]:
        """Those that no call has named."""
        yield from list(self._files)


def entries(messages: Iterable[Message], agents: Agents | None = None) -> Iterator[Entry]:
    """The conversation, entry by entry; a subagent's stand behind the call that it belongs to.

    >>> from geminids.gemini.protocol.journal.replay import replay
    >>> said = replay([b'{"id":"m1","type":"user","content":"hello"}']).messages
    >>> [entry.text for entry in entries(said)]
    ['hello']
    """
    yield from _entries(messages, agents, 0)
    for agent in agents.rest() if agents else ():
        yield Remark(level="info", text=f"Subagent {agent}, whose call is not known:")
        yield from _of_agent(agent, agents, 1)


def _entries(messages: Iterable[Message], agents: Agents | None, depth: int) -> Iterator[Entry]:
    turn = _Turn(depth)
    for said, answers in exchanges(messages):
        common: dict[str, Any] = {"message": said.id, "at": said.timestamp, "depth": depth}
        if said.is_prompt:
            yield from turn.end()
            yield Prompt(text=said.text, media=tuple(_media(said.content)), **common)
        elif said.type == "gemini":
            turn.add(said)
            yield from _spoken(said, common)
        elif said.type != "user" and said.text.strip():
            yield Remark(level=said.type or "info", text=said.text, **common)
        for call in calls_of(said, answers):
            yield _tool(call, common)
            yield from _of_agent(call.agent_id, agents, depth + 1)
    yield from turn.end()


def _of_agent(agent: str | None, agents: Agents | None, depth: int) -> Iterator[Entry]:
    file = agents.take(agent) if agents else None
    if file is None:
        return
    try:
        yield from _entries(open_journal(file).messages, agents, depth)
    except OSError as error:
        why = error.strerror or str(error)
        yield Remark(level="error", text=f"The subagent's file cannot be read: {why}", depth=depth)


def _tool(call: ToolCall, common: dict[str, Any]) -> Tool:
    truth = truth_of(call)
    output, error = (truth.output, truth.error) if truth else (None, None)
    if output is None and error is None and isinstance(shown := call.result_display, str) and shown:
        output = shown
    return Tool(
        id=call.id,
        name=call.name,
        title=tools.title_of(call.name, call.args) or "tool",
        input=call.args,
        status=_status(call, output, error),
        output=output,
        error=error,
        exit_code=truth.exit_code if truth else None,
        changes=truth.changes if truth else (),
        agent=call.agent_id,
        **common,
    )


def _status(
    call: ToolCall, output: str | None, error: str | None
) -> Literal["ok", "failed", "denied", "cancelled", "unfinished"]:
    if call.status not in ("success", "error", "cancelled"):
        return "unfinished"
    if call.status == "success" and (output or "").startswith(_CANCELLED):
        return "cancelled"
    if call.status == "error" and _REFUSED.fullmatch(error or ""):
        return "denied"
    return tools.status_of(call.status, None, error, output)


def _spoken(said: Message, common: dict[str, Any]) -> Iterator[Entry]:
    """Thoughts, then text: the calls that follow were made with them."""
    for subject, text in thoughts_of(said):
        yield Thought(subject=subject, text=text, **common)
    if said.text.strip():
        yield Said(text=said.text, **common)


def _media(content: Any) -> Iterator[Media]:
    for part in content if isinstance(content, list) else ():
        data = part.get("inlineData") if isinstance(part, dict) else None
        if isinstance(data, dict) and isinstance(data.get("mimeType"), str):
            held = data.get("data")
            yield Media(data["mimeType"], held if isinstance(held, str) else "")


class _Turn:
    """What the turn has taken so far."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._clear()

    def _clear(self) -> None:
        self._models: dict[str, None] = {}
        self._counts: dict[str, Any] = dict.fromkeys(
            ("requests", "input", "cached", "output", "thinking", "tool"), 0
        )
        self._last: Message | None = None

    def add(self, said: Message) -> None:
        self._last = said
        if said.model:
            self._models[said.model] = None
        if (tokens := said.tokens) is not None:
            used = (1, tokens.input, tokens.cached, tokens.output, tokens.thoughts, tokens.tool)
            for name, number in zip(self._counts, used, strict=True):
                self._counts[name] += number

    def end(self) -> Iterator[TurnEnd]:
        if self._last is not None:
            of: dict[str, Any] = {"message": self._last.id, "at": self._last.timestamp, "depth": self._depth}
            yield TurnEnd(models=tuple(self._models), **self._counts | of)
        self._clear()
