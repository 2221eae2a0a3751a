"""The lease of a run or chat: its access to the gateway, with its budgets and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.gateway.messages import Halt, InFlightRequest
from geminids.gateway.route import Route
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import NO_KEY, Endpoint
from geminids.options import Options
from geminids.options.validate import LIMITS
from geminids.run.accounting.cost import load_prices_early
from geminids.run.accounting.gateway_queue import GatewayQueue

if TYPE_CHECKING:
    from geminids.gateway.registry import OpenLease
    from geminids.gateway.upstream import Upstream
    from geminids.launch.prepare import Context
    from geminids.run.accounting.lease_setup import AnsweredBy
    from geminids.spending.budget import BaseBudget

__all__ = ["DAY_BOOKED", "RunLease", "attempts_per_request"]

DAY_BOOKED = "GEMINI_CLI_GEMINIDS_DAY_BOOKED"
"""Name of an environment variable that keeps the daily budget from counting a request twice.

A run with a daily budget sets the variable to the folder in which it records its requests. If a
tool of this run starts a second run, the first run also records the requests of the second. So the
second run checks its own daily limits, but does not record its requests in that folder again.
"""


def attempts_per_request(options: Options) -> int | None:
    """Return how often the CLI may send a request. None leaves that to the CLI.

    If geminids retries the run, the CLI sends each request only once, unless the caller has set
    `max_attempts`. With the CLI's usual ten tries, each retry of the run could send a request ten
    times.
    """
    if options.max_attempts is None and (options.retries or options.fallback_models):
        return 1
    return options.max_attempts


class RunLease:
    """The access of one run or chat to the gateway.

    `connect` opens the lease. The lease stays closed if no request goes through the gateway.
    """

    def __init__(
        self,
        options: Options,
        *,
        owner_text: str = "this run",
        budgets: Sequence[BaseBudget] = (),
        shares_process: bool = False,
        parent: RunLease | None = None,
    ) -> None:
        """Store the settings of the lease. The lease is not open yet.

        `owner_text` is the name of the run in messages. `budgets` are budgets that the caller
        shares between runs. `shares_process` is True if the CLI's process also serves other chats:
        each session then gets its own token, if the sign-in permits that. Otherwise the whole CLI
        process uses one token. `parent` is the lease of the chat to which the run belongs; the run
        continues the chat's script, cassette or recording.
        """
        self.queue = GatewayQueue()
        self.reported_unended: set[int] = set()
        """The numbers of requests that had not ended when their turn ended.

        The turn emitted an event for each of them. The token counts of these requests arrive later,
        and are then ignored.
        """
        self._lease: OpenLease | None = None
        self._options = options
        self._owner_text = owner_text
        self._shares_process = shares_process
        self._by_session = False
        self._budgets = tuple(budgets)
        self._has_own_budgets = False
        self._parent = parent
        self._answered_by: AnsweredBy | None = None
        self._remark_queue = self.queue
        """The queue that gets the remarks of what answers the requests."""
        self._key: str | None = None
        """The API key that the gateway uses. None while the lease is closed."""

    @property
    def is_open(self) -> bool:
        """Whether requests go through the gateway."""
        return self._lease is not None

    @property
    def is_dead(self) -> bool:
        """Whether the gateway of this lease has stopped. Its address then no longer works."""
        return self._lease is not None and not self._lease.usable

    @property
    def session_token(self) -> str | None:
        """The token with which a session signs in to the gateway.

        None if all sessions of the CLI process use the same token, or if the lease is closed.
        """
        return self._lease.token if self._lease is not None and self._by_session else None

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """The requests that the CLI has sent to the gateway and that have not ended."""
        return [] if self._lease is None else self._lease.lease.in_flight()

    @property
    def busy(self) -> bool:
        """Whether there is a request that has not ended."""
        return self._lease is not None and self._lease.lease.in_flight_count > 0

    @property
    def turns(self) -> int:
        """The number of turns (model requests with their tool calls) of the main conversation so
        far.
        """
        return self._lease.lease.turns if self._lease is not None else 0

    @property
    def tools(self) -> tuple[str, ...] | None:
        """The tools that the CLI offers to the model, from the first request of the attempt; None
        before that request.
        """
        return self._lease.lease.tools if self._lease is not None else None

    def begin_attempt(self) -> None:
        """Forget which tools the CLI offers to the model. Call this when an attempt or a turn of a
        chat starts.

        The first request of the attempt or turn contains the tools again.
        """
        if self._lease is not None:
            self._lease.lease.tools = None

    def begin_turn(self) -> None:
        """Inform the gateway that the chat sends a new prompt."""
        if self._lease is not None:
            self._lease.lease.begin_turn()

    @property
    def has_budget(self) -> bool:
        """Whether the caller passed a budget, which other runs may share."""
        return bool(self._budgets)

    @property
    def budgets(self) -> tuple[BaseBudget, ...]:
        """The budgets that limit the requests of this lease."""
        return self._lease.lease.budgets if self._lease is not None else self._budgets

    def share_budgets(self) -> tuple[BaseBudget, ...]:
        """Return the budgets, so that another run can use them too.

        If the lease was never opened, the budgets are created now.
        """
        if self._lease is None and not self._has_own_budgets:
            is_nested = DAY_BOOKED in os.environ
            self._budgets = tuple(self._new_budgets(os.environ, is_nested=is_nested))
            self._has_own_budgets = True
        return self.budgets

    def endpoint_for(self, context: Context) -> Endpoint | None:
        """Open the lease if the run uses the gateway, and return the gateway's address and token.

        Return None if the run does not use the gateway.
        """
        return self.connect(context.route, context.env) if context.route.kind == "gateway" else None

    def connect(self, route: Route, env: Mapping[str, str]) -> Endpoint:
        """Open the lease, and return the gateway's address and token.

        `env` contains the environment variables with the settings for proxies and certificates. If
        an earlier attempt of the run has opened the lease, the lease is used again. If the gateway
        has stopped in the meantime, the lease moves to a new gateway. Raises `Refused` if the
        gateway cannot be started, or if an option that the lease needs, such as `key_from`, has a
        wrong value.
        """
        self._by_session = self._shares_process and route.signs_in_by_session
        if self._lease is None:
            # Imported late (19 ms), because a direct route does not need it.
            from geminids.run.accounting.lease_setup import open_gateway_lease

            try:
                budgets = self._new_budgets(env, is_nested=route.is_nested)
            except GeminidsError as error:
                raise Refused("bad_option", error.message, error.hint or "") from None
            upstream = (self._parent or self).share_upstream(route, env, self.queue)
            attempts = attempts_per_request(self._options)
            opened = open_gateway_lease(self._options, route, env, budgets, self.queue, attempts, upstream)
            self._lease, self._key = opened
        elif not self._lease.usable:
            try:
                self._lease = self._lease.renewed()
                self._lease.begin()  # the CLI already runs, so answer its requests from now on
            except GeminidsError as error:
                raise Refused("network", error.message, error.hint or "") from None
            # The old gateway reported that it stopped. An idle chat has not read this message yet:
            # remove it.
            for message in self.queue.take():
                if getattr(message, "kind", None) != "gone":
                    self.queue.put(message)
        day = next((budget.folder for budget in self.budgets if budget.folder is not None), None)
        return Endpoint(
            self._lease.url,
            NO_KEY if self._by_session else self._lease.token,
            {} if day is None else {DAY_BOOKED: str(day)},
            self._key,
        )

    def begin(self) -> None:
        """Make the gateway answer the requests of this lease.

        Call this after the CLI was started: the gateway's imports would delay the start of the CLI.
        """
        if self._lease is not None:
            try:
                self._lease.begin()
            except GeminidsError as error:
                # The CLI already runs, so report the error as if the gateway had stopped.
                self.queue.put(Halt(kind="gone", message=error.message, hint=error.hint or ""))
            if any(budget.is_priced for budget in self.budgets):
                # Load the prices while the CLI loads; otherwise the first request would wait.
                load_prices_early(self._options)

    @property
    def failed_recording(self) -> Path | None:
        """Where the recording is kept if the run fails; None if no request was recorded."""
        recording = None if self._answered_by is None else self._answered_by[1]
        return recording.failed_path if recording is not None and recording.has_requests else None

    def share_upstream(self, route: Route, env: Mapping[str, str], queue: GatewayQueue) -> Upstream | None:
        """Return what answers the requests, so that the runs of a chat continue the same script,
        cassette or recording. Its remarks go to `queue`.

        Return None if requests are only forwarded. If there is no upstream yet, it is created now.
        Raises `Refused` if an option has a wrong value.
        """
        if not self._options.is_simulated and self._options.record is None:
            return None
        self._remark_queue = queue
        if self._answered_by is None:
            # Imported late (19 ms), as in `connect`.
            from geminids.run.accounting.lease_setup import build_upstream

            self._answered_by = build_upstream(
                self._options, route, env, lambda remark: self._remark_queue.put(remark)
            )
        return self._answered_by[0]

    def close(self, *, keep_recording: bool = False) -> None:
        """End the lease. Its token is not valid any more.

        If `keep_recording`, the recording becomes the cassette that the option `record` names.
        Otherwise it is kept in another file.
        """
        if self._lease is not None:
            self._lease.close()
        recording = None if self._answered_by is None else self._answered_by[1]
        if recording is not None:
            recording.close(keep=keep_recording)
        self.queue.close()

    def _new_budgets(self, env: Mapping[str, str], *, is_nested: bool) -> list[BaseBudget]:
        budgets = [*self._budgets]
        if self._has_own_budgets or all(getattr(self._options, name) is None for name in LIMITS):
            return budgets
        # Imported late (5 ms), because few runs have limits.
        from geminids.run.accounting.budget_options import create_budgets

        recorded_in = env.get(DAY_BOOKED) if is_nested else None
        return [*budgets, *create_budgets(self._options, self._owner_text, recorded_in)]
