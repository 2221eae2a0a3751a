"""The gateway as one run or chat uses it: opened for a route, with the budgets and limits of the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.gateway.route import Route
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import NO_KEY, Endpoint
from geminids.options import Options
from geminids.options.validate import LIMITS

if TYPE_CHECKING:
    from geminids.gateway.cassette.recording import Recording
    from geminids.gateway.forward.credential import ApiKey, CliLogin, VertexCredentials
    from geminids.gateway.forward.network_settings import NetworkSettings
    from geminids.gateway.lease import Lease
    from geminids.gateway.limits.rate_limiter import RateLimiter
    from geminids.gateway.messages import GatewayMessage, InFlightRequest
    from geminids.gateway.registry import OpenLease
    from geminids.gateway.upstream import Upstream
    from geminids.launch.prepare import Context
    from geminids.spending.budget import BaseBudget

__all__ = ["DAY_BOOKED", "Mailbox", "RunLease"]

DAY_BOOKED = "GEMINI_CLI_GEMINIDS_DAY_BOOKED"
"""Set for the tools of a run that books a day's budget, to the folder of that budget: a run inside a run checks its
own day's limits but does not book the same requests again."""
# A shorter key would mask ordinary words (see `redact`).
_SHORTEST = 4


class Mailbox:
    """Messages from the gateway's thread to the run's event loop. Put from any thread, wait in asyncio or trio.

    Nothing is lost before the loop runs or after it has ended.
    """

    def __init__(self) -> None:
        self._messages: list[GatewayMessage] = []
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None

    def put(self, message: GatewayMessage) -> None:
        with self._lock:
            self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        """Let `wait` return, with or without a message."""
        with self._lock:
            if self._pipe is not None:
                try:
                    os.write(self._pipe[1], b"\0")
                except BlockingIOError:
                    pass  # the pipe is full: the reader will wake up anyway

    def take(self) -> list[GatewayMessage]:
        """All messages since the last call."""
        with self._lock:
            messages, self._messages = self._messages, []
            return messages

    async def wait(self) -> None:
        """Wait for a message or a call of `wake`."""
        import anyio

        with self._lock:
            if self._messages:
                return
            if self._pipe is None:
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
            end = self._pipe[0]
        await anyio.wait_readable(end)
        with self._lock:
            try:
                os.read(end, 4096)
            except BlockingIOError:
                pass

    def close(self) -> None:
        """Close the pipe. Later messages are kept, but wake nobody."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)


class RunLease:
    """The lease of one run or chat. `connect` opens it; until then, and on a direct route, there is none."""

    def __init__(
        self,
        options: Options,
        *,
        whose: str = "this run",
        budgets: Sequence[BaseBudget] = (),
        shares_process: bool = False,
    ) -> None:
        """`shares_process`: the process serves other chats too, so the token is given to each session, if the
        sign-in permits that, and not to the process."""
        self.mailbox = Mailbox()
        self.reported_unended: set[int] = set()
        """Requests that a turn has reported before they ended: what they report later is ignored."""
        self._lease: OpenLease | None = None
        self._options = options
        self._whose = whose
        self._shares_process = shares_process
        self._by_session = False
        self._budgets = tuple(budgets)
        self._has_own_budgets = False
        self._recording: Recording | None = None
        self._key: str | None = None
        """The key that the gateway signs in with, once it is open."""

    @property
    def is_open(self) -> bool:
        """Whether requests go through the gateway."""
        return self._lease is not None

    @property
    def is_dead(self) -> bool:
        """Whether the gateway has ended under it: its address is of no use any more."""
        return self._lease is not None and not self._lease.usable

    @property
    def session_token(self) -> str | None:
        """What a session has to sign in with, if the environment of its process holds no token."""
        return self._lease.token if self._lease is not None and self._by_session else None

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """The requests that have not ended."""
        return [] if self._lease is None else self._lease.lease.in_flight()

    @property
    def busy(self) -> bool:
        """Whether a request has not ended."""
        return self._lease is not None and self._lease.lease.in_flight_count > 0

    @property
    def turns(self) -> int:
        """How many turns of the main conversation were asked for through it."""
        return self._lease.lease.turns if self._lease is not None else 0

    def begin_turn(self) -> None:
        """A new prompt of a chat begins."""
        if self._lease is not None:
            self._lease.lease.begin_turn()

    @property
    def has_budget(self) -> bool:
        """Whether it shares a budget with others."""
        return bool(self._budgets)

    @property
    def budgets(self) -> tuple[BaseBudget, ...]:
        """The budgets that hold here."""
        return self._lease.lease.budgets if self._lease is not None else self._budgets

    def share_budgets(self) -> tuple[BaseBudget, ...]:
        """The budgets for a run that spends from them too. They are made now if the gateway was never opened."""
        if self._lease is None and not self._has_own_budgets:
            is_nested = DAY_BOOKED in os.environ
            self._budgets = tuple(self._new_budgets(os.environ, is_nested=is_nested))
            self._has_own_budgets = True
        return self.budgets

    def endpoint_for(self, context: Context) -> Endpoint | None:
        """Open the gateway if the run needs it, and return its endpoint; None on a direct route."""
        return self.connect(context.route, context.env) if context.route.kind == "gateway" else None

    def connect(self, route: Route, env: Mapping[str, str]) -> Endpoint:
        """Open the gateway for `route`, or return the open one; `env` names proxies and certificates.

        Raises `Refused` if the gateway cannot be opened. A second attempt of a run gets the same lease; if the
        gateway has ended meanwhile, the lease moves to a new one.
        """
        from geminids.gateway.registry import open_lease

        self._by_session = self._shares_process and route.signs_in_by_session
        if self._lease is None:
            lease = self._new_lease(route, env)
            try:
                self._lease = open_lease(lease)
            except GeminidsError as error:
                raise Refused("network", error.message, error.hint or "") from None
        elif not self._lease.usable:
            try:
                self._lease = self._lease.renewed()
                self._lease.begin()  # at once: the CLI has been spawned long ago
            except GeminidsError as error:
                raise Refused("network", error.message, error.hint or "") from None
            # A chat that was silent has not read that its gateway has ended, and need not any more.
            for message in self.mailbox.take():
                if getattr(message, "kind", None) != "gone":
                    self.mailbox.put(message)
        day = next((budget.folder for budget in self.budgets if budget.folder is not None), None)
        return Endpoint(
            self._lease.url,
            NO_KEY if self._by_session else self._lease.token,
            {} if day is None else {DAY_BOOKED: str(day)},
            self._key,
        )

    def begin(self) -> None:
        """Let the gateway answer. Not before the CLI is spawned: our imports would slow its start."""
        if self._lease is not None:
            try:
                self._lease.begin()
            except GeminidsError as error:
                from geminids.gateway.messages import Halt

                # The CLI runs already: end it like a gateway that has died.
                self.mailbox.put(Halt(kind="gone", message=error.message, hint=error.hint or ""))
            if any(budget.is_priced for budget in self.budgets):
                from geminids.run.accounting.cost import load_prices_early

                # While the CLI loads: the first request would wait for it.
                load_prices_early(self._options)

    def close(self) -> None:
        """End the lease: its token is worth nothing from now on."""
        if self._lease is not None:
            self._lease.close()
        if self._recording is not None:
            self._recording.close()
        self.mailbox.close()

    def _new_lease(self, route: Route, env: Mapping[str, str]) -> Lease:
        from geminids.gateway.lease import Lease

        try:
            self._key = key = self._read_key(route)
            return Lease(
                self._upstream(route, env, key),
                self.mailbox.put,
                api=route.api,
                budgets=self._new_budgets(env, is_nested=route.is_nested),
                rate_limiter=self._pace(route, key),
                wake=self.mailbox.wake,
                only_models=self._options.only_models,
            )
        except GeminidsError as error:
            raise Refused("bad_option", error.message, error.hint or "") from None

    def _read_key(self, route: Route) -> str | None:
        if self._options.key_from is None or route.sign_in != "api_key":
            return route.key
        from geminids.gateway.access.api_key import read_key

        try:
            return read_key(self._options.key_from)
        except GeminidsError as error:
            raise GeminidsError(f"key_from: {error.message}", hint=error.hint) from None

    def _upstream(self, route: Route, env: Mapping[str, str], key: str | None) -> Upstream:
        options = self._options
        if options.offline:
            from geminids.gateway.script.demo import offline_scene
            from geminids.gateway.script.scripted import Scripted

            return Scripted(offline_scene())
        from geminids.redact import secrets_of

        known = secrets_of(env) | ({key} if key is not None and len(key) >= _SHORTEST else set())
        if options.replay is not None:
            from geminids.gateway.cassette.cassette import load_cassette
            from geminids.gateway.cassette.replay import Replaying

            return Replaying(load_cassette(options.replay), secrets=known, on_remark=self._remark)
        from geminids.gateway.forward.forward import Forwarding, default_base_url
        from geminids.gateway.forward.network_settings import read_network_settings

        network = read_network_settings(env)
        credential = _credential(route, key, env, network)
        passing = Forwarding(route.base_url or default_base_url(credential, route.api), credential, network)
        if options.record is None:
            return passing
        from geminids.gateway.cassette.recording import Recording

        self._recording = Recording(passing, options.record, secrets=known, on_remark=self._remark)
        return self._recording

    def _remark(self, text: str) -> None:
        from geminids.gateway.messages import Remark

        code = "record" if self._options.record is not None else "replay"
        self.mailbox.put(Remark(code=code, text=text))

    def _new_budgets(self, env: Mapping[str, str], *, is_nested: bool) -> list[BaseBudget]:
        options = self._options
        budgets = [*self._budgets]
        if self._has_own_budgets or all(getattr(options, name) is None for name in LIMITS):
            return budgets
        from geminids.spending.budget import Budget, Limits
        from geminids.spending.table import read_prices

        own = (options.max_budget, options.max_tokens, options.max_requests)
        day = Limits(dollars=options.day_budget, tokens=options.day_tokens, requests=options.day_requests)
        table = None if options.prices is None else read_prices(options.prices)
        if own != (None, None, None):
            dollars, tokens, requests = own
            budgets.append(
                Budget(dollars=dollars, tokens=tokens, requests=requests, prices=table, name=self._whose)
            )
        if day:
            from geminids.config.paths import Places
            from geminids.spending.daily_budget import DailyBudget
            from geminids.spending.prices import pricing

            folder = Places.of().root / "spent"
            is_recorded_outside = is_nested and env.get(DAY_BOOKED) == str(folder)
            # Always priced: another run of the day may have a budget in dollars.
            budgets.append(DailyBudget(folder, day, pricing(table), is_recorded=not is_recorded_outside))
        return budgets

    def _pace(self, route: Route, key: str | None) -> RateLimiter | None:
        if route.sign_in == "none":
            return None
        from geminids.gateway.limits.rate_limiter import rate_limiter_for

        who = key or f"{route.sign_in} {route.project} {route.location}"
        return rate_limiter_for(who, route.base_url or "", self._options.requests_per_minute)


def _credential(
    route: Route, key: str | None, env: Mapping[str, str], network: NetworkSettings
) -> ApiKey | VertexCredentials | CliLogin:
    from geminids.gateway.forward.credential import ApiKey, CliLogin, VertexCredentials

    if route.sign_in == "account":
        return CliLogin()
    if route.sign_in == "vertex_credentials":
        credentials = VertexCredentials(route.project, route.location, env, network)
        credentials.check_available()
        return credentials
    return ApiKey(key or "")
