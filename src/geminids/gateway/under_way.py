"""A request that has not come to its end: what the run's own thread may read of it at any time, without a lock."""

from __future__ import annotations

__all__ = ["HELD", "UnderWay"]

HELD = "held back by geminids"
"""How we begin to say to a CLI that its request has not left: it comes again, and the API has failed nothing."""


class UnderWay:
    """Written by the gateway's thread, one plain value at a time; times are `time.monotonic`.

    `held_until` and `held_why` are set while it is held back, `left` once it is on its way to the API, `first` and
    `last` with the bytes of its answer. `attempt` and `body` are those of `Answered`.
    """

    __slots__ = (
        "attempt",
        "body",
        "came",
        "first",
        "held_until",
        "held_why",
        "last",
        "left",
        "model",
        "number",
    )

    def __init__(self, number: int, model: str | None, *, attempt: int, body: int, came: float) -> None:
        self.number = number
        self.model = model
        self.attempt = attempt
        self.body = body
        self.came = came
        self.held_until: float | None = None
        self.held_why: str | None = None
        self.left: float | None = None
        self.first: float | None = None
        self.last: float | None = None
