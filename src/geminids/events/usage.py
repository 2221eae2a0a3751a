"""The tokens of a run, as its end tells them."""

from __future__ import annotations

import msgspec

__all__ = ["ModelUsage", "Usage"]


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one served model."""

    model: str
    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a whole run. Input includes cached, output excludes thinking; unknown is None.

    From the stream alone, what total has over input and output is thinking and tool prompts together: both are
    None then, and 0 where nothing is left.
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    requests: int | None = None
    models: tuple[ModelUsage, ...] = ()
