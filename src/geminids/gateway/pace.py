"""The pace of requests to one API: a rate that all runs of this process keep together, and a common back-off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Pace"]


class Pace(Protocol):
    """Shared by all leases that use the same key."""

    async def wait(self, model: str, tell: Callable[[float, str], None]) -> None:
        """Wait until a request to this model may leave; `tell(seconds, why)` where that takes a while."""
        ...

    def told_to_wait(self, model: str, retry_after: float | None) -> None:
        """The API has said 429: nobody asks this model again before the time is up."""
        ...
