"""The pace of requests to one API: a rate that all runs of this process keep together, and a common back-off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from geminids.gateway.backoff import Backoff
from geminids.gateway.rate import Rate

__all__ = ["LONGEST", "Pace", "pace_for"]

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

    @property
    def waiting(self) -> int:
        """How many requests are held back now."""
        with self._lock:
            return len(self._waiting)

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
