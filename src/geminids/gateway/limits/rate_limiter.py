"""The pace of requests to one API: a rate that all runs of this process keep together, and a common back-off."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["LONGEST", "Backoff", "Pace", "Rate", "pace_for"]

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


# A CLI waits 60 s for the first byte of an answer (0.61; older ones 300 s), and the API needs some of that.
LONGEST = 45.0
# Who waits looks again so often: those before it may have gone away.
_LOOK = 0.25
# A shorter wait than this is nothing to tell.
_WORTH_TELLING = 0.5

_Tell = Callable[[float, str], None]


class Pace:
    """Shared by all leases that use the same key and API. Requests leave in the order in which they came.

    It holds nothing of an event loop: gateways come and go in a process, each with a loop of its own.
    """

    def __init__(
        self, requests_per_minute: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = Rate(requests_per_minute) if requests_per_minute else None
        self._backoffs: dict[str, Backoff] = {}
        self._waiting: list[_Waiter] = []
        self._lock = threading.Lock()
        self._clock = clock

    def set_rate(self, requests_per_minute: int) -> None:
        """From now on so many requests a minute."""
        with self._lock:
            if self._rate is None:
                self._rate = Rate(requests_per_minute)
            elif self._rate.per_minute != requests_per_minute:
                self._rate = self._rate.changed(requests_per_minute)

    async def wait(self, model: str, tell: _Tell) -> float:
        """Wait until a request to this model may leave: 0. `tell(seconds, why)` is called once if that takes a while.

        No longer than a CLI has patience. A back-off that is longer is not waited for: the API says it again, to
        the CLI. A rate is kept all the same: the seconds that are left are returned, and the request must not leave.
        """
        import anyio  # late: this module is imported before the CLI is spawned

        waiter = _Waiter(model, self._clock() + LONGEST)
        with self._lock:
            self._waiting.append(waiter)
        told = False
        try:
            while True:
                now = self._clock()
                with self._lock:
                    seconds, why = self._time_left(waiter, now)
                    if seconds <= 0:
                        if self._rate is not None:
                            self._rate.left(now)
                        return 0.0
                if now >= waiter.until:
                    return seconds
                if not told and seconds >= _WORTH_TELLING:
                    told = True
                    tell(min(seconds, LONGEST), why)
                await anyio.sleep(min(seconds, _LOOK, waiter.until - now))
        finally:
            with self._lock:
                self._waiting.remove(waiter)

    def told_to_wait(self, model: str, retry_after: float | None, *, daily: bool = False) -> None:
        """The API has said 429: nobody asks this model again before the time is up.

        A quota of the day is not waited for: it is over for today, and each run shall hear it from the API.
        """
        if not daily:
            with self._lock:
                self._backoffs.setdefault(model, Backoff()).refused(self._clock(), retry_after)

    def answered(self, model: str) -> None:
        """The API has answered: a back-off begins anew the next time."""
        with self._lock:
            if model in self._backoffs:
                self._backoffs[model].answered(self._clock())

    def _time_left(self, waiter: _Waiter, now: float) -> tuple[float, str]:
        off = self._off(waiter, now)
        if off > 0:
            return off, f"the API has said 429 for {waiter.model}: too many requests"
        # Those before it that wait for another model to come back are in nobody's way, nor are those whose time is up.
        before = self._waiting[: self._waiting.index(waiter)]
        ahead = sum(now < one.until and self._off(one, now) <= 0 for one in before)
        seconds = self._rate.wait(now, ahead) if self._rate is not None else 0.0
        why = f"{self._rate.per_minute} requests a minute may leave" if self._rate is not None else ""
        return (_AFTER_YOU if ahead and seconds <= 0 else seconds), why

    def _off(self, waiter: _Waiter, now: float) -> float:
        backoff = self._backoffs.get(waiter.model)
        return backoff.wait(now) if backoff is not None and now < waiter.until else 0.0


# There is room for both, and the one before has only to wake up.
_AFTER_YOU = 0.001


class _Waiter:
    """A request that wants to leave, and when it has to know."""

    def __init__(self, model: str, until: float) -> None:
        self.model = model
        self.until = until


_lock = threading.Lock()
_paces: dict[int, Pace] = {}


def pace_for(key: str, base_url: str, requests_per_minute: int | None = None) -> Pace:
    """The pace of all runs of this process with this key and API. The rate that was named last holds for all.

    >>> pace_for("a key", "https://api.example") is pace_for("a key", "https://api.example/", 60)
    True
    """
    # Not the key itself: this outlives the runs that have it. The hash is of this process alone.
    whose = hash((key, base_url.rstrip("/")))
    with _lock:
        pace = _paces.setdefault(whose, Pace())
    if requests_per_minute:
        pace.set_rate(requests_per_minute)
    return pace
