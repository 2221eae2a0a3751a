"""The replies of a scripted model, as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

if TYPE_CHECKING:
    from geminids.gateway.request import Request

__all__ = ["Call", "Reply", "ReplyFields", "Script", "ScriptLike", "Usage", "make_reply"]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tool call of the model."""

    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens as the model reports them. `input` includes `cached`; `output` does not include
    `thinking`.

    Missing values are estimated from the texts; `total` is input + output + thinking + tool.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One answer of the scripted model: its content, its faults, and which requests it is for.

    >>> Reply(text="hi").text, Reply(status=429).status
    ('hi', 429)
    """

    # The content, in this order. Each item of a list is sent as one chunk.
    thought: str | list[str] | None = None
    text: str | list[str] | None = None
    calls: list[Call] = []
    raw: list[dict[str, Any]] = []
    garbage: str | list[str] | None = None
    empty: bool = False
    blocked: str | None = None
    # The end of the answer.
    finish: str | None = "STOP"
    usage: Usage | None = None
    model_version: str | None = None
    # An HTTP error instead of an answer.
    status: int = 200
    error: str | None = None
    error_status: str | None = None
    details: list[Any] = []
    headers: dict[str, str] = {}
    # Timing in seconds, and whether the answer stalls or is cut.
    delay: float = 0
    pause: float = 0
    stall: bool = False
    cut: bool = False
    # Which requests it is for, and for how many (None: no limit).
    when: str | None = None
    method: Literal["stream", "generate", "any"] = "stream"
    times: int | None = 1

    def __post_init__(self) -> None:
        # ValueError, because msgspec adds the place in the file to it.
        if not 200 <= self.status <= 599:
            raise ValueError(f"status must be from 200 to 599, not {self.status}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times must be 1 or more, or null for no limit, not {self.times}")
        if self.delay < 0 or self.pause < 0:
            raise ValueError("delay and pause must be 0 seconds or more")
        if self.stall and self.cut:
            raise ValueError("a reply can have stall or cut, not both")
        if self.when is not None:
            try:
                re.compile(self.when)
            except re.error as error:
                raise ValueError(f"when is not a regular expression: {error}") from None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Replies in order, and the default for requests that match none of them."""

    replies: tuple[Reply, ...] = ()
    default: Reply = Reply(text="(the script has no further reply)", times=None)


class ReplyFields(TypedDict, total=False):
    """The fields of a `Reply` as keywords; calls may be written as `(name, args)`."""

    thought: str | list[str] | None
    text: str | list[str] | None
    calls: Sequence[Call | tuple[str, Mapping[str, Any]]]
    raw: list[dict[str, Any]]
    garbage: str | list[str] | None
    empty: bool
    blocked: str | None
    finish: str | None
    usage: Usage | Mapping[str, int] | None
    model_version: str | None
    status: int
    error: str | None
    error_status: str | None
    details: list[Any]
    headers: dict[str, str]
    delay: float
    pause: float
    stall: bool
    cut: bool
    when: str | None
    method: Literal["stream", "generate", "any"]
    times: int | None


def make_reply(fields: ReplyFields) -> Reply:
    """Build a reply from keywords. Calls may be tuples and usage may be a dictionary.

    >>> make_reply({"calls": [("read_file", {"file_path": "a"})]}).calls
    [Call(name='read_file', args={'file_path': 'a'}, id=None)]
    """
    values: dict[str, Any] = dict(fields)
    if "calls" in fields:
        values["calls"] = [c if isinstance(c, Call) else Call(c[0], dict(c[1])) for c in fields["calls"]]
    usage = fields.get("usage")
    if usage is not None and not isinstance(usage, Usage):
        values["usage"] = Usage(**usage)
    return Reply(**values)


# A callable may return None: then the default replies apply.
ScriptLike = Script | Sequence[Reply] | Callable[["Request"], Reply | None] | None
