"""The event model: everything that a run reports, as frozen structs."""

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
    "Transport",
    "Turn",
    "Usage",
    "decode_event",
    "encode_event",
]

Transport = Literal["headless", "warm"]
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
    """Base of all events.

    `at` is the time in Unix ms. `seq` numbers the events from 0 without gaps. `attempt` and `turn`
    count from 1.
    """

    at: int
    seq: int
    attempt: int
    turn: int


class Started(Event, frozen=True, kw_only=True):
    """The process of an attempt was started. Only notices can come before it."""

    run_id: str
    session_id: str | None
    model: str | None
    cwd: str
    cli_version: str | None
    lane: Transport
    pid: int
    approval: str | None = None
    prompt: str | None = None
    """The prompt, with secrets masked, so that the events alone contain the whole conversation."""

    def __post_init__(self) -> None:
        # Command-line arguments and folder names may be invalid UTF-8.
        for name in ("cwd", "model", "prompt"):
            if not (value := getattr(self, name) or "").isascii():
                msgspec.structs.force_setattr(self, name, whole(value))


class Text(Event, frozen=True, kw_only=True, gc=False):
    """A piece of the agent's answer. Concatenate the pieces without a separator."""

    text: str


class Thought(Event, frozen=True, kw_only=True):
    """A thought of the model, if the transport reports thoughts."""

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
    """The change that a tool made to one file."""

    path: str
    kind: Literal["created", "edited", "deleted", "moved"]
    diff: str | None = None


class ToolFinished(Event, frozen=True, kw_only=True):
    """A tool call ended. Each `ToolStarted` has exactly one."""

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
    """The agent needs permission for a tool call. The run waits. `id` is the id of the tool call.

    `command` is the exact shell command. `changes` contain the exact diff. `details` describe other
    tools, as the CLI does (the arguments of an MCP tool, cut after about 500 characters). `always`
    says what `allow_always` would cover for the rest of the chat; None if it is not offered.
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
    """The answer to a `PermissionAsked`: the decision, who made it, and why."""

    id: str
    tool: str
    decision: Choice
    by: By
    reason: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the audit trail: the request, the decision, who made it, and how long it took."""

    id: str
    tool: str
    what: str
    decision: Choice
    by: By
    reason: str | None
    at: int
    waited_ms: int


class TokensUsed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """One API request: its tokens and its price. Input includes cached, output excludes thinking.

    `model` is the model that the API served. `status` is the HTTP status, None if no answer came.
    `repeat`: it repeats an earlier request of the run. Tokens are None if the answer ended without
    final usage. `price` is in dollars, by the caller's price table or the list price. `calls` and
    `thoughts` count the tool calls and thought parts of the answer. `request` is its number within
    the run, from 1. Requests that the gateway did not see (`gateway="off"`, stored sessions) have
    neither number nor price.
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
        """Whether the API refused it. Such a request costs nothing and is not part of the conversation."""
        return self.status is not None and self.status >= 400


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation in its real order: thoughts, text and tool calls of the model.

    `tools` and `thoughts` of subagents have a `parent`.
    """

    number: int
    thoughts: tuple[Thought, ...] = ()
    text: str = ""
    tools: tuple[ToolFinished, ...] = ()
    tokens: tuple[TokensUsed, ...] = ()


class Retry(msgspec.Struct, frozen=True):
    """The CLI retries a request: the attempt that failed, and its HTTP status."""

    attempt: int | None
    http_status: int | None


class SessionStart(msgspec.Struct, frozen=True):
    """The session and the model that the CLI reported when it had loaded."""

    session_id: str
    model: str | None


class Notice(Event, frozen=True, kw_only=True):
    """Information that changes no state: a retry, unexpected output, a stall."""

    level: Level
    code: str
    message: str
    retry: Retry | None = None
    stall: Stall | None = None
    request: int | None = None
    """The number of the API request that the notice is about."""
    session: SessionStart | None = None
    """Set if the code is `session`."""
    wait_s: float | None = None
    """How many seconds the run waits from now on. It then continues automatically."""


class EndedProcess(msgspec.Struct, frozen=True):
    """A process of the run that we had to end, and the signal that ended it."""

    pid: int
    command: str
    signal: Literal["TERM", "KILL"]


class Finished(Event, frozen=True, kw_only=True):
    """The end of a run. Every run emits exactly one, as its last event."""

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
    """The answer as a JSON value, if the run has a schema."""
    stall: Stall | None = None
    """What the run waited for, if it was ended because it was idle for too long."""
    finish_reason: str | None = None
    """The API's finish reason of the last answer of the main conversation: `STOP`, `MAX_TOKENS`,
    `SAFETY` and so on. None if the gateway did not see it."""
    discarded: tuple[int, ...] = ()
    """The numbers of the requests whose answers the CLI discarded. They are billed."""


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
    """Encode an event as one line of JSON, without the newline."""
    return encode_json(event)


def decode_event(line: bytes | str) -> AnyEvent:
    """Decode a line that `encode_event` wrote."""
    return _decoder.decode(line)
