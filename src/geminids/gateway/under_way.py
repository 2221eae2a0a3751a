"""A request that has not come to its end: what the run's own thread may read of it at any time, without a lock."""

from __future__ import annotations

import msgspec

from geminids.gateway.told import RequestRole

__all__ = ["HELD", "UnderWay"]

HELD = "held back by geminids"
"""How we begin to say to a CLI that its request has not left: it comes again, and the API has failed nothing."""


class UnderWay(msgspec.Struct, eq=False):
    """Written by the gateway's thread, one plain value at a time; times are `time.monotonic`.

    `held_until` and `held_why` are set while it is held back, `left` once it is on its way to the API, `first` and
    `last` with the bytes of its answer. `attempt` and `body` are those of `Answered`.
    """

    number: int
    model: str | None
    role: RequestRole
    is_paid: bool
    attempt: int
    body: int
    came: float
    held_until: float | None = None
    held_why: str | None = None
    left: float | None = None
    first: float | None = None
    last: float | None = None
