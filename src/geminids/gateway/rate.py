"""A rate: so many requests a minute, evenly, and never more in any minute. Pure: it is told the time."""

from __future__ import annotations

from collections import deque

__all__ = ["Rate"]

_MINUTE = 60.0
# So much of a minute's requests may leave at once after a quiet time.
_AT_ONCE = 6


class Rate:
    """When the next request may leave."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._apart = _MINUTE / per_minute
        self._early = self._apart * (max(1, per_minute // _AT_ONCE) - 1)
        self._even = 0.0
        """When the next one would leave if all left evenly."""
        self._left: deque[float] = deque(maxlen=per_minute)

    def changed(self, per_minute: int) -> Rate:
        """Another rate from now on; what has left counts in it."""
        rate = Rate(per_minute)
        rate._left = deque(self._left, maxlen=max(self._left.maxlen or 0, per_minute))
        rate._even = min(self._even, (self._left[-1] if self._left else 0.0) + rate._apart + rate._early)
        return rate

    def wait(self, now: float, before: int = 0) -> float:
        """How long until a request may leave that has so many before it.

        >>> rate = Rate(60)
        >>> [rate.left(0.0) for _ in range(10)] and rate.wait(0.0), rate.wait(0.5, before=2)
        (1.0, 2.5)
        """
        even = self._even - self._early + before * self._apart
        minute = 0.0
        more = len(self._left) - self.per_minute
        if more >= 0:
            minute = self._left[more + min(before, self.per_minute - 1)] + _MINUTE
        return max(even - now, minute - now, 0.0)

    def left(self, now: float) -> None:
        """A request leaves now."""
        self._even = max(self._even, now) + self._apart
        self._left.append(now)
