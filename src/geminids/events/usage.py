"""The tokens of a run, summed over its requests."""

from __future__ import annotations

import msgspec

__all__ = ["ModelUsage", "Usage"]


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one served model. `unknown` counts its requests whose tokens are not known."""

    model: str
    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    unknown: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a run: the sum of its `TokensUsed`. Input includes cached, output excludes thinking.

    `requests` counts all requests, failed ones too. `unknown` counts those whose tokens are not known, because their
    answer was interrupted; they are not in the sums. Without the gateway the sums are the CLI's own: it does not
    separate thinking from tool tokens (both None) and does not count requests (None).
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None
    total: int | None = None
    requests: int | None = None
    unknown: int = 0
    models: tuple[ModelUsage, ...] = ()
