"""A lease: the right of one run or chat to send requests to the gateway. It contains a token,
budgets and limits.
"""

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
    """The right of one run or chat to use the gateway, with the limits and the state of this run.

    The CLI sends `token` with each request, so that the gateway can find the lease. The token is
    not valid after the lease is closed.
    """

    def __init__(
        self,
        upstream: Upstream,
        on_message: OnMessage,
        *,
        budgets: Sequence[BaseBudget] = (),
        rate_limiter: RateLimiter | None = None,
        wake: Callable[[], None] | None = None,
        only_models: Sequence[str] = (),
        max_attempts: int | None = None,
        api: Api = "gemini",
    ) -> None:
        """Create a lease. The lease is usable only after `open_lease` (in `registry`) has opened
        it.

        `upstream` is the object that answers the requests. `on_message` is called with the
        gateway's messages about the requests. `wake` is called when a request has ended, and when
        the gateway learns which tools the CLI offers to the model. `only_models` are patterns of
        the models that may be used; if it is empty, all models are allowed. `max_attempts` is how
        often the CLI may send a request; None leaves that to the CLI. `api` is the API that the run
        uses; requests to another API are refused.
        """
        self.token = TOKEN_PREFIX + os.urandom(24).hex()
        self.upstream = upstream
        self.budgets = tuple(budgets)
        self.rate_limiter = rate_limiter
        self.only_models = tuple(only_models)
        self.max_attempts = max_attempts
        self.api = api
        self.halted: Halt | None = None
        self.activity: Activity | None = None
        """Detects what the CLI does without reporting it, such as repeated requests. None until the
        first request of a prompt.
        """
        self.tools: tuple[str, ...] | None = None
        """The tools that the first request of the main conversation declared. Set back to
        None at the start of each attempt."""
        self.turns = 0
        """The number of turns of the main conversation so far. A turn is a model request with its
        tool calls.
        """
        self.paid = self._unpaid = 0
        """The number of paid requests so far. They are numbered from 1."""
        self.in_flight_count = 0
        """The number of requests that have not ended."""
        self.requests: dict[int, InFlightRequest] = {}
        """The requests that have not ended, by number. Other threads must read them with
        `in_flight`."""
        self.attempts: dict[int, int] = {}
        """For each request that has failed: the number of its attempts, by the digest of its
        body."""
        self._on_message = on_message
        self._wake = wake

    def begin_turn(self) -> None:
        """Start a new prompt of a chat. Requests of the new prompt are not compared with the
        requests of earlier prompts.
        """
        self.activity = None

    def next_number(self, *, is_paid: bool) -> int:
        """Return the number for a new request of the run. Requests that the API charges for are
        numbered 1, 2, 3, …; all others -1, -2, -3, …
        """
        if is_paid:
            self.paid += 1
            return self.paid
        self._unpaid += 1
        return -self._unpaid

    def wake(self) -> None:
        """Wake the run, which may be waiting for an event in the gateway: a request has ended, or
        the gateway has learned which tools the CLI offers to the model.
        """
        if self._wake is not None:
            self._wake()

    def report(self, message: GatewayMessage) -> None:
        """Send a message about the run's requests to the run. After the message `Halt`, all later
        requests of the run are refused.
        """
        if isinstance(message, Halt):
            self.halted = self.halted or message
        self._on_message(message)

    def in_flight(self) -> list[InFlightRequest]:
        """Return the run's requests that have not ended, the oldest one first. Any thread may call
        this method.
        """
        # No lock is needed: `list` is atomic, so the gateway's thread cannot change the dictionary
        # during the call.
        return list(self.requests.values())

    def renew(self) -> None:
        """Prepare to open the lease at a new gateway, because the old gateway stopped unexpectedly.
        Forget the unfinished requests. If the run was halted only because the old gateway stopped,
        accept its requests again.
        """
        self.in_flight_count = 0
        self.requests.clear()
        if self.halted is not None and self.halted.kind == "gone":
            self.halted = None

    def serves(self, model: str | None) -> bool:
        """Return whether the run may send requests to this model. The model must match a pattern in
        `only_models`. If `only_models` is empty, every model is allowed.
        """
        return not self.only_models or any(fnmatchcase(model or "", pattern) for pattern in self.only_models)


class Leases:
    """All open leases (the rights of runs to use the gateway), by token. The gateway's thread looks
    them up. Any thread may add and remove them.
    """

    def __init__(self) -> None:
        self._by_token: dict[str, Lease] = {}
        self._lock = threading.Lock()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._by_token[lease.token] = lease

    def remove(self, lease: Lease) -> int:
        """Remove a lease, and return how many leases are left."""
        with self._lock:
            self._by_token.pop(lease.token, None)
            return len(self._by_token)

    def find(self, token: str | None) -> Lease | None:
        # The look-up is safe: a dictionary compares hashes, so its time does not reveal how many
        # characters of a guessed token are right.
        return self._by_token.get(token) if token else None

    def all(self) -> list[Lease]:
        with self._lock:
            return list(self._by_token.values())
