"""A back-off: how long nobody asks a model again that has said "too many requests". Pure: it is told the time."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff"]

_FIRST = 1.0
_LONGEST = 60.0
# Up to a quarter more, so that several machines with one key do not come back together.
_JITTER = 0.25


class Backoff:
    """The back-off of one model."""

    def __init__(self, chance: Callable[[], float] | None = None) -> None:
        self._until = 0.0
        self._times = 0
        self._chance = chance

    def wait(self, now: float) -> float:
        """How long until the model may be asked again."""
        return max(self._until - now, 0.0)

    def refused(self, now: float, retry_after: float | None) -> None:
        """The API has said 429, and perhaps for how long.

        Requests that left together are refused together: while a time is running, another refusal makes it no longer
        unless it says so.

        >>> backoff = Backoff(chance=lambda: 0.0)
        >>> [(backoff.refused(now, None), backoff.wait(now))[1] for now in (0.0, 0.5, 1.0, 3.0)]
        [1.0, 0.5, 2.0, 4.0]
        """
        if retry_after is not None:
            self._until = max(self._until, now + retry_after)
        elif now >= self._until:
            longer = 1 + _JITTER * (self._chance or _any)()
            self._until = now + min(_FIRST * 2**self._times, _LONGEST) * longer
            self._times = min(self._times + 1, 10)

    def answered(self, now: float) -> None:
        """The API has answered. Not to one of those that left before it said no: that proves nothing."""
        if now >= self._until:
            self._times = 0


def _any() -> float:
    import random  # late: it takes longer than all else here

    return random.random()
