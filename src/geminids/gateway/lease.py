"""A lease: one run's right to use the gateway, with the token that proves it and the terms that it is under."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from geminids.gateway.messages import Halt, Tell, Told, UnderWay
from geminids.gateway.request import TOKEN_PREFIX, Api
from geminids.gateway.upstream import Upstream

if TYPE_CHECKING:
    from geminids.gateway.limits.activity import Activity
    from geminids.gateway.limits.rate_limiter import Pace
    from geminids.spending.budget import BaseBudget

__all__ = ["TOKEN_PREFIX", "Lease", "Leases"]


class Lease:
    """What one run, or one chat, may ask for through the gateway. `token` is worth nothing once it is closed."""

    def __init__(
        self,
        upstream: Upstream,
        tell: Tell,
        *,
        budgets: Sequence[BaseBudget] = (),
        pace: Pace | None = None,
        wake: Callable[[], None] | None = None,
        only_models: Sequence[str] = (),
        api: Api = "gemini",
    ) -> None:
        """`api`: the form of the API that the run's sign-in uses; requests of another form are refused."""
        self.token = TOKEN_PREFIX + os.urandom(24).hex()
        self.upstream = upstream
        self.budgets = tuple(budgets)
        self.pace = pace
        self.only_models = tuple(only_models)
        self.api = api
        self.halted: Halt | None = None
        self.activity: Activity | None = None
        """What the CLI does with its requests; made by the first one."""
        self.turns = 0
        """How many turns of the main conversation were asked for."""
        self.paid = self._unpaid = 0
        """How many paid requests have come; each has its number from 1."""
        self.under_way = 0
        """How many of them have not come to their end."""
        self.requests: dict[int, UnderWay] = {}
        """Those that have not come to their end, by their numbers; to be read from any thread (see `now`)."""
        self.attempts: dict[int, int] = {}
        """How often each request that has failed was tried, by the digest of its body."""
        self._tell = tell
        self._wake = wake

    def begin_turn(self) -> None:
        """A new prompt of a chat: what was asked before is not repeated by it."""
        self.activity = None

    def next_number(self, *, is_paid: bool) -> int:
        """The number of a request: from 1 for what is paid, from -1 downwards for the rest."""
        if is_paid:
            self.paid += 1
            return self.paid
        self._unpaid += 1
        return -self._unpaid

    def wake(self) -> None:
        """A request has come to its end: whoever waits for the last one looks again."""
        if self._wake is not None:
            self._wake()

    def tell(self, told: Told) -> None:
        if isinstance(told, Halt):
            self.halted = self.halted or told
        self._tell(told)

    def now(self) -> list[UnderWay]:
        """What is under way, the oldest first; waits for nobody."""
        # One step for the interpreter: the gateway's thread cannot change the dictionary in the middle of it.
        return list(self.requests.values())

    def renew(self) -> None:
        """The gateway has died, and there is another: nobody has ended what was under way at the old one."""
        self.under_way = 0
        self.requests.clear()
        if self.halted is not None and self.halted.kind == "gone":
            self.halted = None

    def serves(self, model: str | None) -> bool:
        """Whether requests to this model may pass."""
        return not self.only_models or any(fnmatchcase(model or "", one) for one in self.only_models)


class Leases:
    """The leases that are open, by their tokens; asked from the gateway's thread, changed from any."""

    def __init__(self) -> None:
        self._by_token: dict[str, Lease] = {}
        self._lock = threading.Lock()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._by_token[lease.token] = lease

    def remove(self, lease: Lease) -> int:
        """Take a lease out; say how many are left."""
        with self._lock:
            self._by_token.pop(lease.token, None)
            return len(self._by_token)

    def find(self, token: str | None) -> Lease | None:
        # A dictionary finds by hash: how long that takes says nothing about how much of a guess was right.
        return self._by_token.get(token) if token else None

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._by_token.values())
