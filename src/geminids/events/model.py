"""The event model: all events that a run emits, as frozen structs."""

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
    """Base class of all events of a run.

    `at` is the time in Unix milliseconds. `seq` numbers the events of the run: 0, 1, 2, … `attempt`
    is the number of the attempt, and `turn` the number of the turn within it; both count from 1.
    """

    at: int
    seq: int
    attempt: int
    turn: int


class Started(Event, frozen=True, kw_only=True):
    """The CLI process of an attempt has started. Only notices can come before this event in the
    attempt.
    """

    run_id: str
    session_id: str | None
    model: str | None
    cwd: str
    cli_version: str | None
    transport: Transport
    pid: int
    approval: str | None = None
    prompt: str | None = None
    """The prompt, with secrets masked. With it, the events contain the whole conversation."""

    def __post_init__(self) -> None:
        # Command-line arguments and folder names may be invalid UTF-8.
        for name in ("cwd", "model", "prompt"):
            if not (value := getattr(self, name) or "").isascii():
                msgspec.structs.force_setattr(self, name, whole(value))


class Text(Event, frozen=True, kw_only=True, gc=False):
    """A piece of the agent's answer. Join the pieces without a separator to get the whole
    answer.
    """

    text: str


class Thought(Event, frozen=True, kw_only=True):
    """A thought of the model. Some thoughts may not be reported; this depends on the transport
    (headless or warm).

    `parent` is None for a thought of the main agent. For a thought of a subagent, `parent` is the
    id of the tool call that started the subagent.
    """

    subject: str | None
    text: str
    parent: str | None = None


class ToolStarted(Event, frozen=True, kw_only=True):
    """The agent has called a tool.

    `input` contains the arguments; it is None if they are not known yet. `parent` is None for a
    call of the main agent. For a call of a subagent, `parent` is the id of the tool call that
    started the subagent.
    """

    id: str
    name: str
    kind: ToolKind
    title: str
    input: dict[str, Any] | None
    paths: tuple[str, ...] = ()
    parent: str | None = None


class Change(msgspec.Struct, frozen=True):
    """A change that a tool made to one file. `diff` is the change as a unified diff; None if it is
    not known.
    """

    path: str
    kind: Literal["created", "edited", "deleted", "moved"]
    diff: str | None = None


class ToolFinished(Event, frozen=True, kw_only=True):
    """A tool call has ended. Each `ToolStarted` event is followed by exactly one `ToolFinished`
    event with the same `id`.
    """

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
    """The agent asks for permission for a tool call, and the run waits for the answer. `id` is the
    id of the tool call.

    The fields depend on the kind of tool. For a shell command, `command` is the exact command. For
    an edit, `changes` contains the exact diffs. For other tools, `details` contains the CLI's
    description of the call. For an MCP tool, this description is the arguments of the call,
    shortened to about 500 characters.

    `options` are the possible answers. `always` describes what the answer `allow_always` would
    allow until the end of the chat; it is None if that answer is not possible.
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
    """The answer to the `PermissionAsked` event with the same `id`. It contains the decision, who
    or what made it (`by`), and the reason.
    """

    id: str
    tool: str
    decision: Choice
    by: By
    reason: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A permission decision, as an item in the list of all decisions of a run.

    It contains what was asked (`what`), the decision, who or what made it (`by`), the time in Unix
    milliseconds (`at`), and for how many milliseconds the run waited for it (`waited_ms`).
    """

    id: str
    tool: str
    what: str
    decision: Choice
    by: By
    reason: str | None
    at: int
    waited_ms: int


class TokensUsed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """One API request: its tokens and its price.

    - `request` is the number of the request within the run, from 1.
    - `model` is the model that answered, and `requested_model` the one that the CLI requested.
    - `role` is the purpose for which the CLI sent the request.
    - `input`, `cached`, `output`, `thinking` and `tool` are numbers of tokens. `input` includes
      `cached`; `output` does not include `thinking`. They are None if the API did not report the
      final numbers, for example because the answer was interrupted.
    - `price` is in dollars. It comes from the price table of the option `prices` or, for a model
      that is not in this table, from Google's list prices.
    - `free` is true if a script or a cassette answered, so that the request cost nothing.
    - `status` is the HTTP status; None if there was no answer.
    - `repeat` is true if the request repeats an earlier request of the run.
    - `calls` and `thoughts` say how many tool calls and how many thoughts the answer contains.

    `request` and `price` are None if the request did not go through the gateway: in runs with
    `gateway="off"`, and in stored sessions.
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
    free: bool = False
    calls: int | None = None
    thoughts: int | None = None
    waited_ms: int | None = None
    first_byte_ms: int | None = None
    duration_ms: int | None = None

    @property
    def is_http_error(self) -> bool:
        """Whether the API answered the request with an HTTP error (status 400 or higher). Such a
        request costs nothing, and is not part of the conversation.
        """
        return self.status is not None and self.status >= 400


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation: the thoughts, the text and the tool calls of the model, and the
    API requests (`tokens`).

    Thoughts and tool calls of a subagent are part of the turn too. Their attribute `parent` is set.
    """

    number: int
    thoughts: tuple[Thought, ...] = ()
    text: str = ""
    tools: tuple[ToolFinished, ...] = ()
    tokens: tuple[TokensUsed, ...] = ()


class Retry(msgspec.Struct, frozen=True):
    """Details of a failed request that the CLI will send again.

    `attempt` is the number of the failed attempt. It counts the attempts of this request, not those
    of the run. `http_status` is the HTTP status of the failed attempt. None means unknown.
    """

    attempt: int | None
    http_status: int | None


class SessionStart(msgspec.Struct, frozen=True):
    """The session id and the model that the CLI reported after its start."""

    session_id: str
    model: str | None


class Notice(Event, frozen=True, kw_only=True):
    """Information about the run, for example about a retry, unexpected output of the CLI, or a
    stall (a long time without events).

    `code` identifies the kind of notice. `message` is the text for a person. Some notices contain
    structured details in other fields.
    """

    level: Level
    code: str
    message: str
    retry: Retry | None = None
    stall: Stall | None = None
    request: int | None = None
    """The number of the API request that the notice is about."""
    session: SessionStart | None = None
    """The session and the model that the CLI reported. Set only if `code` is `session`."""
    wait_s: float | None = None
    """The number of seconds that the run waits from now on. It then continues automatically."""
    wait_reason: str | None = None
    """Why the gateway delays the request. Set only if `code` is `waiting`."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that the model can call. Set only if `code` is `tools`."""


class EndedProcess(msgspec.Struct, frozen=True):
    """A process of the run that geminids ended, because the process did not exit by itself.
    `signal` is the last signal that geminids sent to the process.
    """

    pid: int
    command: str
    signal: Literal["TERM", "KILL"]


class Finished(Event, frozen=True, kw_only=True):
    """The run has ended. Each run emits this event exactly once, as its last event. It contains the
    result of the run. `failure` is None only if `outcome` is `success`.
    """

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
    """The answer as a JSON value, if the run has a schema; otherwise None."""
    stall: Stall | None = None
    """What the run waited for, if geminids ended the run because nothing happened for too long;
    otherwise None."""
    finish_reason: str | None = None
    """The API's finish reason of the last answer in the main conversation: `STOP`, `MAX_TOKENS`,
    `SAFETY` and so on. None if the answer did not go through the gateway."""
    discarded: tuple[int, ...] = ()
    """The requests whose answers the CLI discarded, each as its number (`TokensUsed.request`).
    These requests are billed."""


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
    """Convert a line of JSON that `encode_event` returned back to an event. Raises
    `msgspec.MsgspecError` if the line is not a valid event.
    """
    return _decoder.decode(line)
