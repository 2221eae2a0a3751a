"""The rate limit of one API, shared by all runs of this process, and the back-off after a 429."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["MAX_WAIT", "Backoff", "Rate", "RateLimiter", "rate_limiter_for"]

_MINUTE = 60.0
# After a quiet time, a burst of this fraction (a sixth) of a minute's requests may be sent at once.
_BURST_FRACTION = 6


class Rate:
    """Computes when the next request may be sent."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._interval = _MINUTE / per_minute
        self._burst_time = self._interval * (max(1, per_minute // _BURST_FRACTION) - 1)
        self._next_even = 0.0
        """When the next request would be sent if all were sent at even intervals."""
        self._sent_at: deque[float] = deque(maxlen=per_minute)

    def with_limit(self, per_minute: int) -> Rate:
        """A copy with another limit. Requests that were sent before count towards it."""
        rate = Rate(per_minute)
        rate._sent_at = deque(self._sent_at, maxlen=max(self._sent_at.maxlen or 0, per_minute))
        last = self._sent_at[-1] if self._sent_at else 0.0
        rate._next_even = min(self._next_even, last + rate._interval + rate._burst_time)
        return rate

    def wait(self, now: float, before: int = 0) -> float:
        """Seconds until a request may be sent that has `before` others before it in the queue.

        >>> rate = Rate(60)
        >>> [rate.record(0.0) for _ in range(10)] and rate.wait(0.0), rate.wait(0.5, before=2)
        (1.0, 2.5)
        """
        even = self._next_even - self._burst_time + before * self._interval
        minute = 0.0
        surplus = len(self._sent_at) - self.per_minute
        if surplus >= 0:
            minute = self._sent_at[surplus + min(before, self.per_minute - 1)] + _MINUTE
        return max(even - now, minute - now, 0.0)

    def record(self, now: float) -> None:
        """Record that a request is sent now."""
        self._next_even = max(self._next_even, now) + self._interval
        self._sent_at.append(now)


_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
# Up to a quarter more, so that several machines with the same key do not retry at the same time.
_JITTER = 0.25


class Backoff:
    """The back-off of one model."""

    def __init__(self, chance: Callable[[], float] | None = None) -> None:
        self._until = 0.0
        self._times = 0
        self._chance = chance

    def wait(self, now: float) -> float:
        """Seconds until the next request to this model may be sent."""
        return max(self._until - now, 0.0)

    def refused(self, now: float, retry_after: float | None) -> None:
        """The API answered with 429, perhaps with the time to wait.

        Requests that were sent together are refused together. So while a back-off is running,
        another 429 extends it only if it names a later time.

        >>> backoff = Backoff(chance=lambda: 0.0)
        >>> [(backoff.refused(now, None), backoff.wait(now))[1] for now in (0.0, 0.5, 1.0, 3.0)]
        [1.0, 0.5, 2.0, 4.0]
        """
        if retry_after is not None:
            self._until = max(self._until, now + retry_after)
        elif now >= self._until:
            factor = 1 + _JITTER * (self._chance or _random)()
            self._until = now + min(_FIRST_BACKOFF * 2**self._times, _MAX_BACKOFF) * factor
            self._times = min(self._times + 1, 10)

    def answered(self, now: float) -> None:
        """The API answered. Ignored during a back-off: that request may have been sent before the
        429."""
        if now >= self._until:
            self._times = 0


def _random() -> float:
    import random  # late: its import takes longer than the rest of this module

    return random.random()


# The CLI waits 60 s for the first byte of an answer (0.61; older ones 300 s), and the API needs
# part of that.
MAX_WAIT = 45.0
# A waiting request checks this often whether those before it are gone.
_POLL_SECONDS = 0.25
# A shorter wait is not reported.
_REPORTED_SECONDS = 0.5

_OnWait = Callable[[float, str], None]


class RateLimiter:
    """Shared by all leases that use the same key and API. Requests are sent in the order in which
    they arrived.

    It depends on no event loop: a process may have several gateways one after another, each with
    its own loop.
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
        """Change the rate from now on."""
        with self._lock:
            if self._rate is None:
                self._rate = Rate(requests_per_minute)
            elif self._rate.per_minute != requests_per_minute:
                self._rate = self._rate.with_limit(requests_per_minute)

    async def wait(self, model: str, on_wait: _OnWait) -> float:
        """Wait until a request to this model may be sent, then return 0. A wait that takes a while
        is reported once with `on_wait(seconds, reason)`.

        The wait ends after `MAX_WAIT`. If a back-off is longer, the request is sent anyway, and the
        API answers the CLI with 429 again. If the rate is exceeded, the remaining seconds are
        returned and the request must not be sent.
        """
        import anyio  # late: this module is imported before the CLI is spawned

        waiter = _Waiter(model, self._clock() + MAX_WAIT)
        with self._lock:
            self._waiting.append(waiter)
        is_reported = False
        try:
            while True:
                now = self._clock()
                with self._lock:
                    seconds, reason = self._remaining(waiter, now)
                    if seconds <= 0:
                        if self._rate is not None:
                            self._rate.record(now)
                        return 0.0
                if now >= waiter.until:
                    return seconds
                if not is_reported and seconds >= _REPORTED_SECONDS:
                    is_reported = True
                    on_wait(min(seconds, MAX_WAIT), reason)
                await anyio.sleep(min(seconds, _POLL_SECONDS, waiter.until - now))
        finally:
            with self._lock:
                self._waiting.remove(waiter)

    def back_off(self, model: str, retry_after: float | None, *, daily: bool = False) -> None:
        """The API answered with 429: send nothing to this model until the back-off is over.

        A daily quota causes no back-off: it lasts until tomorrow, and each run should get the API's
        own error.
        """
        if not daily:
            with self._lock:
                self._backoffs.setdefault(model, Backoff()).refused(self._clock(), retry_after)

    def answered(self, model: str) -> None:
        """The API answered: the next back-off starts with the shortest time again."""
        with self._lock:
            if model in self._backoffs:
                self._backoffs[model].answered(self._clock())

    def _remaining(self, waiter: _Waiter, now: float) -> tuple[float, str]:
        backoff = self._backoff_left(waiter, now)
        if backoff > 0:
            return backoff, f"the API answered 429 (too many requests) for {waiter.model}"
        # Requests before it do not count if they wait for the back-off of another model, or if
        # their time is up.
        before = self._waiting[: self._waiting.index(waiter)]
        ahead = sum(now < other.until and self._backoff_left(other, now) <= 0 for other in before)
        seconds = self._rate.wait(now, ahead) if self._rate is not None else 0.0
        reason = f"the limit is {self._rate.per_minute} requests a minute" if self._rate is not None else ""
        return (_QUEUE_SECONDS if ahead and seconds <= 0 else seconds), reason

    def _backoff_left(self, waiter: _Waiter, now: float) -> float:
        backoff = self._backoffs.get(waiter.model)
        return backoff.wait(now) if backoff is not None and now < waiter.until else 0.0


# The rate allows both requests: the one before has only to wake up first.
_QUEUE_SECONDS = 0.001


class _Waiter:
    """A request that waits, and the time at which it stops waiting."""

    def __init__(self, model: str, until: float) -> None:
        self.model = model
        self.until = until


_lock = threading.Lock()
_limiters: dict[int, RateLimiter] = {}


def rate_limiter_for(key: str, base_url: str, requests_per_minute: int | None = None) -> RateLimiter:
    """The rate limiter of all runs of this process with this key and API. The last rate that was
    given applies to all.

    >>> rate_limiter_for("a key", "https://api.example") is rate_limiter_for("a key", "https://api.example/", 60)
    True
    """
    # A hash and not the key: this outlives the runs that have the key. The hash is valid in this
    # process only.
    identity = hash((key, base_url.rstrip("/")))
    with _lock:
        limiter = _limiters.setdefault(identity, RateLimiter())
    if requests_per_minute:
        limiter.set_rate(requests_per_minute)
    return limiter
