"""The tokens of one request. The gateway imports this module before the CLI is spawned."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Counts", "Tokens"]


class Tokens(Protocol):
    """The tokens of one request: input includes cached, output excludes thinking. `TokensUsed`
    implements it."""

    @property
    def input(self) -> int | None: ...
    @property
    def cached(self) -> int | None: ...
    @property
    def output(self) -> int | None: ...
    @property
    def thinking(self) -> int | None: ...
    @property
    def tool(self) -> int | None: ...


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one request as the API counts them: input includes cached, output excludes
    thinking."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None

    @property
    def total(self) -> int:
        return sum(part or 0 for part in (self.input, self.output, self.thinking, self.tool))
