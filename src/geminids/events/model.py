"""The event model: what a run says of itself, as frozen values with fixed names."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import msgspec

from geminids.events.cost import Cost, ModelUsage, Usage
from geminids.events.encoding import encode_json, whole
from geminids.events.stall import Stall
from geminids.outcome import Failure, Outcome

__all__ = [
    "AnyEvent",
    "By",
    "Change",
    "Choice",
    "Decision",
    "EndedProcess",
    "Event",
    "Finished",
    "Lane",
    "Level",
    "ModelUsage",
    "Notice",
    "PermissionAsked",
    "PermissionDecided",
    "Retry",
    "Role",
    "Started",
    "Text",
    "Thought",
    "TokensUsed",
    "ToolFinished",
    "ToolKind",
    "ToolStarted",
    "ToolStatus",
    "Turn",
    "Usage",
    "decode_event",
    "encode_event",
]

Lane = Literal["headless", "warm"]
Level = Literal["debug", "info", "warning", "error"]
ToolStatus = Literal["ok", "failed", "denied", "cancelled"]
Role = Literal[
    "main", "router", "compression", "loop_check", "search", "fetch", "subagent", "nested", "other"
]
Choice = Literal["allow", "allow_always", "deny"]
By = Literal["rule", "callback", "person", "timeout", "cancel"]
ToolKind = Literal[
    "read", "edit", "write", "delete", "move", "search", "execute", "fetch", "think", "plan", "agent", "other"
]


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_snake, gc=False):
    """What every event has: when (Unix ms), its number (from 0, no gaps), the attempt and the turn (from 1)."""

    at: int
    seq: int
    attempt: int
    turn: int


class Started(Event, frozen=True, kw_only=True):
    """An attempt was spawned. Only notices may come before it."""

    run_id: str
    session_id: str | None
    model: str | None
    cwd: str
    cli_version: str | None
    lane: Lane
    pid: int
    approval: str | None = None
    prompt: str | None = None
    """What was asked, secrets masked: whoever has the events alone can tell the whole conversation."""

    def __post_init__(self) -> None:
        for name in (
            "cwd",
            "model",
            "prompt",
        ):  # words of a command line and names of folders need not be UTF-8
            if not (given := getattr(self, name) or "").isascii():
                msgspec.structs.force_setattr(self, name, whole(given))


class Text(Event, frozen=True, kw_only=True, gc=False):
    """A piece of the agent's answer; join the pieces with nothing between."""

    text: str


class Thought(Event, frozen=True, kw_only=True):
    """What the model thought, where the lane can know it."""

    subject: str | None
    text: str
    parent: str | None = None


class ToolStarted(Event, frozen=True, kw_only=True):
    """The agent called a tool."""

    id: str
    name: str
    kind: ToolKind
    title: str
    input: dict[str, Any] | None
    paths: tuple[str, ...] = ()
    parent: str | None = None


class Change(msgspec.Struct, frozen=True):
    """What a tool did to one file."""

    path: str
    kind: Literal["created", "edited", "deleted", "moved"]
    diff: str | None = None


class ToolFinished(Event, frozen=True, kw_only=True):
    """A tool came to its end; every `ToolStarted` has exactly one."""

    id: str
    name: str
    input: dict[str, Any] | None
    status: ToolStatus
    output: str | None = None
    error: str | None = None
    exit_code: int | None = None
    changes: tuple[Change, ...] = ()
    duration_ms: int | None = None
    parent: str | None = None


class PermissionAsked(Event, frozen=True, kw_only=True):
    """The agent wants to do something that somebody must allow; the run waits. `id` is the tool call's.

    `command` is the exact shell command, `changes` have the exact diff, `details` are what the CLI tells of other tools
    (the arguments of an MCP tool, cut after some 500 characters); `always` says what `allow_always` would
    cover for the rest of the chat, None where it is not offered.
    """

    id: str
    tool: str
    kind: ToolKind
    title: str
    command: str | None = None
    details: str | None = None
    cwd: str | None = None
    changes: tuple[Change, ...] = ()
    paths: tuple[str, ...] = ()
    options: tuple[Choice, ...] = ("allow", "allow_always", "deny")
    always: str | None = None
    parent: str | None = None


class PermissionDecided(Event, frozen=True, kw_only=True):
    """What was decided, by whom, and why."""

    id: str
    tool: str
    decision: Choice
    by: By
    reason: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit trail: what was asked, what was decided, by whom, and after how long."""

    id: str
    tool: str
    what: str
    decision: Choice
    by: By
    reason: str | None
    at: int
    waited_ms: int


class TokensUsed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """One API request: what it used and cost. Input includes cached, output excludes thinking.

    `model` is the model that the API served. `status` is the HTTP status, None if no answer came. `repeat`: it repeats
    an earlier request of the run. Tokens are None if the answer ended without final usage. `price` is in dollars, by
    the caller's price table or the list price. `calls` and `thoughts` count the tool calls and thought parts
    of the answer. `request` is its number within the run, from 1. Requests that the gateway did not see
    (`gateway="off"`, stored sessions) have neither number nor price.
    """

    model: str | None
    role: Role
    input: int | None
    cached: int | None
    output: int | None
    thinking: int | None
    tool: int | None
    request: int | None = None
    requested_model: str | None = None
    status: int | None = None
    repeat: bool = False
    price: Decimal | None = None
    calls: int | None = None
    thoughts: int | None = None
    waited_ms: int | None = None
    first_byte_ms: int | None = None
    duration_ms: int | None = None

    @property
    def is_http_error(self) -> bool:
        """Whether the API refused it. Such a request costs nothing and is no part of the conversation."""
        return self.status is not None and self.status >= 400


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation, in its true order: what the model thought, said, and called.

    `tools` and `thoughts` of subagents have a `parent`.
    """

    number: int
    thoughts: tuple[Thought, ...] = ()
    text: str = ""
    tools: tuple[ToolFinished, ...] = ()
    tokens: tuple[TokensUsed, ...] = ()


class Retry(msgspec.Struct, frozen=True):
    """The CLI tries a request again: which attempt failed, and with what HTTP status."""

    attempt: int | None
    http_status: int | None


class SessionStart(msgspec.Struct, frozen=True):
    """The session and the model that the CLI named once it had loaded."""

    session_id: str
    model: str | None


class Notice(Event, frozen=True, kw_only=True):
    """Something worth knowing that changes no state: a retry, noise, an odd line, a stall."""

    level: Level
    code: str
    message: str
    retry: Retry | None = None
    stall: Stall | None = None
    request: int | None = None
    """The number of the API request that it is about."""
    session: SessionStart | None = None
    """With the code `session`: what the CLI named."""
    wait_s: float | None = None
    """How many seconds the run waits from now on, before it goes on by itself."""


class EndedProcess(msgspec.Struct, frozen=True):
    """A process of the run that had to be ended, and the signal that did it."""

    pid: int
    command: str
    signal: Literal["TERM", "KILL"]


class Finished(Event, frozen=True, kw_only=True):
    """The end of a run: exactly once, last, always."""

    run_id: str
    outcome: Outcome
    failure: Failure | None
    reason: str | None
    text: str
    answer: str
    session_id: str | None
    clear_session: bool
    usage: Usage | None
    attempts: int
    exit_code: int | None
    duration_ms: int
    ended: tuple[EndedProcess, ...]
    complete: bool
    decisions: tuple[Decision, ...] = ()
    cost: Cost | None = None
    value: Any = None
    """The answer as the JSON value that a schema asked for."""
    stall: Stall | None = None
    """What a run waited for that was ended for its silence."""
    finish_reason: str | None = None
    """The API's word for the last answer of the main conversation: `STOP`, `MAX_TOKENS`, `SAFETY` and so on. None if
    the gateway did not see it."""
    discarded: tuple[int, ...] = ()
    """The numbers of the requests whose answers the CLI discarded. They are paid for."""


AnyEvent = (
    Started
    | Text
    | Thought
    | ToolStarted
    | ToolFinished
    | PermissionAsked
    | PermissionDecided
    | TokensUsed
    | Notice
    | Finished
)

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode_event(event: Event) -> bytes:
    """One event as one line of JSON, without the newline."""
    return encode_json(event)


def decode_event(line: bytes | str) -> AnyEvent:
    """The event that `encode_event` wrote."""
    return _decoder.decode(line)
