"""The types for the numbers of tokens of one request.

The gateway imports this module before the CLI is started, so the module imports little.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Counts", "Tokens"]


class Tokens(Protocol):
    """Interface of objects with the numbers of tokens of one request, for example the event
    `TokensUsed`. None means that a number is unknown.

    `input` includes `cached`. `output` does not include `thinking`.
    """

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
    """The numbers of tokens of one request, as the API reported them. None means that a number is
    unknown.

    `input` includes `cached`. `output` does not include `thinking`.
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thinking: int | None = None
    tool: int | None = None

    @property
    def total(self) -> int:
        return sum(part or 0 for part in (self.input, self.output, self.thinking, self.tool))
