"""Limit the rate of requests to one API. All runs of this process share the limit. After an HTTP
429 answer (too many requests), pause the requests (back-off).
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["MAX_WAIT", "Backoff", "Rate", "RateLimiter", "rate_limiter_for"]

_MINUTE = 60.0
# After a pause, a sixth of the requests that are allowed in a minute may be sent at once.
_BURST_FRACTION = 6


class Rate:
    """Computes when the next request may be sent, so that at most `per_minute` requests are sent in
    a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._interval = _MINUTE / per_minute
        self._burst_time = self._interval * (max(1, per_minute // _BURST_FRACTION) - 1)
        self._next_even = 0.0
        """The time at which the next request would be sent if all requests were sent at even
        intervals."""
        self._sent_at: deque[float] = deque(maxlen=per_minute)

    def with_limit(self, per_minute: int) -> Rate:
        """Return a copy with another limit. The requests that were already sent count for the new
        limit too.
        """
        rate = Rate(per_minute)
        rate._sent_at = deque(self._sent_at, maxlen=max(self._sent_at.maxlen or 0, per_minute))
        last = self._sent_at[-1] if self._sent_at else 0.0
        rate._next_even = min(self._next_even, last + rate._interval + rate._burst_time)
        return rate

    def wait(self, now: float, before: int = 0) -> float:
        """Return the number of seconds until a request may be sent. `now` is the current time in
        seconds. `before` is the number of requests that wait in the queue before this one.

        In the example, ten requests are sent at the time 0. After a pause, ten requests (a sixth of
        the limit of 60) may be sent at once; each further request must wait one second longer.

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
        """Record that a request is sent at the time `now` (in seconds)."""
        self._next_even = max(self._next_even, now) + self._interval
        self._sent_at.append(now)


_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
# Add up to a quarter to each wait, so that several machines with the same key do not retry at the
# same time.
_JITTER = 0.25


class Backoff:
    """Computes how long requests to one model must wait after the API answered with 429 (too many
    requests). `chance` is a function that returns a random number from 0 to 1. It makes the waits
    slightly different, so that several machines do not retry at the same time.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._until = 0.0
        self._times = 0
        self._chance = chance

    def wait(self, now: float) -> float:
        """Return the number of seconds until the next request to this model may be sent; 0 if it
        may be sent now.
        """
        return max(self._until - now, 0.0)

    def refused(self, now: float, retry_after: float | None) -> None:
        """Start or extend the wait after a 429 answer (too many requests). `now` is the time of the
        answer. `retry_after` is the number of seconds that the API asks to wait; None if it names
        no time.

        Requests that were sent together are refused together. Therefore a 429 answer during a wait
        makes the wait longer only if `retry_after` ends later than the wait.

        In the example, the answers arrive at the times 0, 0.5, 1 and 3. The wait doubles with each
        429 answer that arrives after the end of the previous wait.

        >>> backoff = Backoff(chance=lambda: 0.0)
        >>> [(backoff.refused(now, None), backoff.wait(now))[1] for now in (0.0, 0.5, 1.0, 3.0)]
        [1.0, 0.5, 2.0, 4.0]
        """
        if retry_after is not None:
            self._until = max(self._until, now + retry_after)
        elif now >= self._until:
            factor = 1 + _JITTER * self._chance()
            self._until = now + min(_FIRST_BACKOFF * 2**self._times, _MAX_BACKOFF) * factor
            self._times = min(self._times + 1, 10)

    def answered(self, now: float) -> None:
        """Record a successful answer at the time `now`. The next wait after a 429 answer is then
        the shortest one again.

        During a wait, this has no effect, because the answered request may have been sent before
        the 429 answer.
        """
        if now >= self._until:
            self._times = 0


# The longest wait, in seconds. CLI 0.61 waits 60 s for the first byte of an answer (older releases
# 300 s), and the API needs a part of this time.
MAX_WAIT = 45.0
# A waiting request checks after this number of seconds whether it may be sent now. This is needed
# because requests before it in the queue may disappear.
_POLL_SECONDS = 0.25
# A wait of fewer seconds than this is not reported to the run.
_REPORTED_SECONDS = 0.5

_OnWait = Callable[[float, str], None]


class RateLimiter:
    """Limits the rate of all requests of this process that use the same key and API. Requests are
    sent in the order in which they arrived.

    The limiter does not belong to an event loop, because a process may have several gateways, one
    after another, each with its own loop. The function `clock` returns the current time in seconds.
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
        """Change the limit to this number of requests per minute, from now on."""
        with self._lock:
            if self._rate is None:
                self._rate = Rate(requests_per_minute)
            elif self._rate.per_minute != requests_per_minute:
                self._rate = self._rate.with_limit(requests_per_minute)

    async def wait(self, model: str, on_wait: _OnWait) -> float:
        """Wait until a request to this model may be sent, then return 0. If the request must wait
        for half a second or longer, `on_wait(seconds, reason)` is called once.

        The wait ends after `MAX_WAIT` seconds at the latest. What happens then depends on the
        reason for the wait. If the API asked to wait longer (after a 429 answer), the method
        returns 0: the request is sent anyway, and the API may answer with 429 again. If the limit
        of requests per minute is the reason, the method returns the remaining seconds, and the
        request must not be sent.
        """
        import anyio  # imported late: this module is loaded before the CLI is spawned

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
        """Stop sending requests to this model for a while, because the API answered with 429 (too
        many requests). `retry_after` is the number of seconds that the API asks to wait; None if it
        names no time.

        If `daily` is true, a daily quota is used up. Then the method does nothing: waiting until
        tomorrow is too long, so each run gets the API's own error.
        """
        if not daily:
            with self._lock:
                self._backoffs.setdefault(model, Backoff()).refused(self._clock(), retry_after)

    def answered(self, model: str) -> None:
        """Record a successful answer of this model. The next wait after a 429 answer is then the
        shortest one again.
        """
        with self._lock:
            if model in self._backoffs:
                self._backoffs[model].answered(self._clock())

    def _remaining(self, waiter: _Waiter, now: float) -> tuple[float, str]:
        backoff = self._backoff_left(waiter, now)
        if backoff > 0:
            return backoff, f"the API answered 429 (too many requests) for {waiter.model}"
        # Count the earlier requests in the queue. Leave out a request that waits for the back-off
        # of its own model, or that has waited for `MAX_WAIT`.
        before = self._waiting[: self._waiting.index(waiter)]
        ahead = sum(now < other.until and self._backoff_left(other, now) <= 0 for other in before)
        seconds = self._rate.wait(now, ahead) if self._rate is not None else 0.0
        reason = f"the limit is {self._rate.per_minute} requests a minute" if self._rate is not None else ""
        return (_QUEUE_SECONDS if ahead and seconds <= 0 else seconds), reason

    def _backoff_left(self, waiter: _Waiter, now: float) -> float:
        backoff = self._backoffs.get(waiter.model)
        return backoff.wait(now) if backoff is not None and now < waiter.until else 0.0


# The seconds to wait if the limit allows a request, but an earlier request in the queue is not sent
# yet.
_QUEUE_SECONDS = 0.001


class _Waiter:
    """A request to `model` that waits in the queue of the rate limiter. `until` is the time at
    which it stops waiting.
    """

    def __init__(self, model: str, until: float) -> None:
        self.model = model
        self.until = until


_lock = threading.Lock()
_limiters: dict[int, RateLimiter] = {}


def rate_limiter_for(key: str, base_url: str, requests_per_minute: int | None = None) -> RateLimiter:
    """Return the rate limiter for this key and this API. All runs of this process with the same key
    and API share it. If `requests_per_minute` is set, it becomes the new limit for all these runs.

    >>> rate_limiter_for("a key", "https://api.example") is rate_limiter_for("a key", "https://api.example/", 60)
    True
    """
    # Store a hash instead of the key, because the limiter lives longer than the runs that use the
    # key. The hash is valid only in this process.
    identity = hash((key, base_url.rstrip("/")))
    with _lock:
        limiter = _limiters.setdefault(identity, RateLimiter())
    if requests_per_minute:
        limiter.set_rate(requests_per_minute)
    return limiter
