"""The types for the replies of a scripted model (prepared answers in place of a model)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

if TYPE_CHECKING:
    from geminids.gateway.request import Request

__all__ = ["Call", "Reply", "ReplyFields", "ReplyUsage", "Script", "ScriptLike", "make_reply"]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool call in an answer of the scripted model."""

    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class ReplyUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The token counts that a scripted answer reports. `input` includes `cached`. `output` does not
    include `thinking`.

    If `input` or `output` is None, the number is estimated. If `thinking` is None, it is estimated
    from the thought; without a thought, it is not reported. If `cached` or `tool` is None, it is
    not reported. If `total` is None, it is input + output + thinking + tool.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One answer of the scripted model: its content, its errors and pauses, and the requests that
    it answers.

    >>> Reply(text="hi").text, Reply(status=429).status
    ('hi', 429)
    """

    # The content, sent in this order. Each item of a list is sent as one chunk. `raw` are complete
    # response objects, and `garbage` is text that is not a valid answer.
    thought: str | list[str] | None = None
    text: str | list[str] | None = None
    calls: list[Call] = []
    raw: list[dict[str, Any]] = []
    garbage: str | list[str] | None = None
    empty: bool = False
    blocked: str | None = None
    # The end of the answer: the finish reason, the tokens, and the name of the model that answered.
    finish: str | None = "STOP"
    usage: ReplyUsage | None = None
    model_version: str | None = None
    # An HTTP error in place of an answer, if `status` is 400 or more.
    status: int = 200
    error: str | None = None
    error_status: str | None = None
    details: list[Any] = []
    headers: dict[str, str] = {}
    # `delay` is the wait in seconds before the answer, and `pause` the wait between chunks. With
    # `stall`, the answer stops and never ends; with `cut`, the connection breaks.
    delay: float = 0
    pause: float = 0
    stall: bool = False
    cut: bool = False
    # `when` is a regular expression for the last user text, and `method` the API method. `times` is
    # how many requests the reply answers (None: no limit).
    when: str | None = None
    method: Literal["stream", "generate", "any"] = "stream"
    times: int | None = 1

    def __post_init__(self) -> None:
        # Raise ValueError: msgspec catches it and adds the position in the file to its message.
        if not 200 <= self.status <= 599:
            raise ValueError(f"`status` must be from 200 to 599, not {self.status}")
        if self.times is not None and self.times < 1:
            raise ValueError(f"`times` must be 1 or more, or null for no limit, not {self.times}")
        if self.delay < 0 or self.pause < 0:
            raise ValueError("`delay` and `pause` must be 0 seconds or more")
        if self.stall and self.cut:
            raise ValueError("a reply can have `stall` or `cut`, not both")
        if self.when is not None:
            try:
                re.compile(self.when)
            except re.error as error:
                raise ValueError(f"`when` is not a valid regular expression: {error}") from None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prepared answers in place of a model. Each request gets the next of the `replies` that fits
    it (see `Scripted.pick`). `default` answers the requests for which no reply is left.
    """

    replies: tuple[Reply, ...] = ()
    default: Reply = Reply(text="(the script has no further reply)", times=None)


class ReplyFields(TypedDict, total=False):
    """The fields of a `Reply` as keyword arguments. A tool call in `calls` may be a `Call` or a
    pair `(name, args)`.
    """

    thought: str | list[str] | None
    text: str | list[str] | None
    calls: Sequence[Call | tuple[str, Mapping[str, Any]]]
    raw: list[dict[str, Any]]
    garbage: str | list[str] | None
    empty: bool
    blocked: str | None
    finish: str | None
    usage: ReplyUsage | Mapping[str, int] | None
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
    """Create a `Reply` from its fields. Tool calls may be pairs `(name, args)`, and `usage` may be
    a dictionary. Raises `ValueError` if a field is not valid.

    >>> make_reply({"calls": [("read_file", {"file_path": "a"})]}).calls
    [Call(name='read_file', args={'file_path': 'a'}, id=None)]
    """
    values: dict[str, Any] = dict(fields)
    if "calls" in fields:
        values["calls"] = [c if isinstance(c, Call) else Call(c[0], dict(c[1])) for c in fields["calls"]]
    usage = fields.get("usage")
    if usage is not None and not isinstance(usage, ReplyUsage):
        values["usage"] = ReplyUsage(**usage)
    return Reply(**values)


# If a callable returns None, a default reply is used.
ScriptLike = Script | Sequence[Reply] | Callable[["Request"], Reply | None] | None
