"""A lease: the right of one run or chat to use the gateway, with its token, budgets and limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from geminids.gateway.messages import GatewayMessage, Halt, InFlightRequest, OnMessage
from geminids.gateway.request import TOKEN_PREFIX, Api
from geminids.gateway.upstream import Upstream

if TYPE_CHECKING:
    from geminids.gateway.limits.activity import Activity
    from geminids.gateway.limits.rate_limiter import RateLimiter
    from geminids.spending.budget import BaseBudget

__all__ = ["TOKEN_PREFIX", "Lease", "Leases"]


class Lease:
    """The limits and the state of one run or chat at the gateway. `token` is invalid once the lease
    is closed."""

    def __init__(
        self,
        upstream: Upstream,
        on_message: OnMessage,
        *,
        budgets: Sequence[BaseBudget] = (),
        rate_limiter: RateLimiter | None = None,
        wake: Callable[[], None] | None = None,
        only_models: Sequence[str] = (),
        api: Api = "gemini",
    ) -> None:
        """`api`: the form of the API that the run's sign-in uses; requests of another form are
        refused."""
        self.token = TOKEN_PREFIX + os.urandom(24).hex()
        self.upstream = upstream
        self.budgets = tuple(budgets)
        self.rate_limiter = rate_limiter
        self.only_models = tuple(only_models)
        self.api = api
        self.halted: Halt | None = None
        self.activity: Activity | None = None
        """Recognises repeats, fallbacks and so on. The first request creates it."""
        self.turns = 0
        """Number of turns of the main conversation that were requested."""
        self.paid = self._unpaid = 0
        """Number of paid requests received; they are numbered from 1."""
        self.in_flight_count = 0
        """Number of requests that have not ended."""
        self.requests: dict[int, InFlightRequest] = {}
        """Requests that have not ended, by number. Read them with `in_flight` from other
        threads."""
        self.attempts: dict[int, int] = {}
        """Number of attempts of each request that has failed, by the digest of its body."""
        self._on_message = on_message
        self._wake = wake

    def begin_turn(self) -> None:
        """Start a new prompt of a chat: later requests are not compared with those before it."""
        self.activity = None

    def next_number(self, *, is_paid: bool) -> int:
        """The number of a request: paid requests count up from 1, all others down from -1."""
        if is_paid:
            self.paid += 1
            return self.paid
        self._unpaid += 1
        return -self._unpaid

    def wake(self) -> None:
        """Notify the run that a request has ended: it may be waiting for the last one."""
        if self._wake is not None:
            self._wake()

    def report(self, message: GatewayMessage) -> None:
        """Send a message to the run. A `Halt` also stops all later requests."""
        if isinstance(message, Halt):
            self.halted = self.halted or message
        self._on_message(message)

    def in_flight(self) -> list[InFlightRequest]:
        """Requests that have not ended, oldest first. Takes no lock."""
        # `list` is atomic: the gateway's thread cannot change the dictionary meanwhile.
        return list(self.requests.values())

    def renew(self) -> None:
        """Move to a new gateway after the old one died: the requests in flight at the old one are
        dropped."""
        self.in_flight_count = 0
        self.requests.clear()
        if self.halted is not None and self.halted.kind == "gone":
            self.halted = None

    def serves(self, model: str | None) -> bool:
        """Whether `only_models` allows requests to this model."""
        return not self.only_models or any(fnmatchcase(model or "", pattern) for pattern in self.only_models)


class Leases:
    """The open leases by token. The gateway's thread looks them up; any thread may add and remove
    them."""

    def __init__(self) -> None:
        self._by_token: dict[str, Lease] = {}
        self._lock = threading.Lock()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._by_token[lease.token] = lease

    def remove(self, lease: Lease) -> int:
        """Remove a lease and return how many are left."""
        with self._lock:
            self._by_token.pop(lease.token, None)
            return len(self._by_token)

    def find(self, token: str | None) -> Lease | None:
        # A dictionary looks up by hash, so the time it takes does not reveal how much of a guess
        # was right.
        return self._by_token.get(token) if token else None

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._by_token.values())
