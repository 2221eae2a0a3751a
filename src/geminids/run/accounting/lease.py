"""A run's or chat's lease on the gateway, with the route, budgets and limits of the run."""

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
"""Set in the environment of a run with a daily budget, to the folder of that budget. A nested run
then checks its own daily limits but does not record the same requests again."""
# Shorter keys are not redacted: they would mask ordinary words (see `redact`).
_SHORTEST = 4


class Mailbox:
    """Passes messages from the gateway's thread to the run's event loop.

    `put` from any thread, `wait` in asyncio or trio.

    Keeps messages that arrive before the loop starts or after it ended.
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
        """Return all messages since the last call."""
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
        """Close the pipe. Later messages are kept, but `wait` does not return for them."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)


class RunLease:
    """The lease of one run or chat. `connect` opens it; on a direct route it stays closed."""

    def __init__(
        self,
        options: Options,
        *,
        whose: str = "this run",
        budgets: Sequence[BaseBudget] = (),
        shares_process: bool = False,
    ) -> None:
        """`shares_process`: the process serves other chats too.

        Each session then gets its own token, if the sign-in permits that, instead of one token for
        the process.
        """
        self.mailbox = Mailbox()
        self.reported_unended: set[int] = set()
        """Requests that a turn reported before they ended. Their later usage is ignored."""
        self._lease: OpenLease | None = None
        self._options = options
        self._whose = whose
        self._shares_process = shares_process
        self._by_session = False
        self._budgets = tuple(budgets)
        self._has_own_budgets = False
        self._recording: Recording | None = None
        self._key: str | None = None
        """The gateway's API key, once the lease is open."""

    @property
    def is_open(self) -> bool:
        """Whether requests go through the gateway."""
        return self._lease is not None

    @property
    def is_dead(self) -> bool:
        """Whether the gateway of this lease has ended, so that its address no longer works."""
        return self._lease is not None and not self._lease.usable

    @property
    def session_token(self) -> str | None:
        """The token that a session signs in with; None if its process has one."""
        return self._lease.token if self._lease is not None and self._by_session else None

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """The requests that have not ended."""
        return [] if self._lease is None else self._lease.lease.in_flight()

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return self._lease is not None and self._lease.lease.in_flight_count > 0

    @property
    def turns(self) -> int:
        """The number of turns of the main conversation so far."""
        return self._lease.lease.turns if self._lease is not None else 0

    def begin_turn(self) -> None:
        """Start a new prompt of a chat."""
        if self._lease is not None:
            self._lease.lease.begin_turn()

    @property
    def has_budget(self) -> bool:
        """Whether the caller gave it a budget, which other runs may share."""
        return bool(self._budgets)

    @property
    def budgets(self) -> tuple[BaseBudget, ...]:
        """The budgets that apply to this lease."""
        return self._lease.lease.budgets if self._lease is not None else self._budgets

    def share_budgets(self) -> tuple[BaseBudget, ...]:
        """The budgets, for another run to share. Creates them if the gateway was never opened."""
        if self._lease is None and not self._has_own_budgets:
            is_nested = DAY_BOOKED in os.environ
            self._budgets = tuple(self._new_budgets(os.environ, is_nested=is_nested))
            self._has_own_budgets = True
        return self.budgets

    def endpoint_for(self, context: Context) -> Endpoint | None:
        """Open the gateway if the run needs it, and return its endpoint; None on a direct route."""
        return self.connect(context.route, context.env) if context.route.kind == "gateway" else None

    def connect(self, route: Route, env: Mapping[str, str]) -> Endpoint:
        """Open the gateway for `route`; `env` names proxies and certificates.

        Raises `Refused` if the gateway cannot be opened. A second attempt of a run reuses the
        lease; if the gateway has ended meanwhile, the lease moves to a new one.
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
                self._lease.begin()  # at once: the CLI already runs
            except GeminidsError as error:
                raise Refused("network", error.message, error.hint or "") from None
            # An idle chat has not read the message that its old gateway ended. Drop it.
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
        """Let the gateway answer.

        Call it after the CLI is spawned: our imports would delay the spawn.
        """
        if self._lease is not None:
            try:
                self._lease.begin()
            except GeminidsError as error:
                from geminids.gateway.messages import Halt

                # The CLI already runs: end the run as if the gateway had died.
                self.mailbox.put(Halt(kind="gone", message=error.message, hint=error.hint or ""))
            if any(budget.is_priced for budget in self.budgets):
                from geminids.run.accounting.cost import load_prices_early

                # Load now, while the CLI loads: otherwise the first request would wait for it.
                load_prices_early(self._options)

    def close(self) -> None:
        """End the lease and invalidate its token."""
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

        secrets = secrets_of(env) | ({key} if key is not None and len(key) >= _SHORTEST else set())
        if options.replay is not None:
            from geminids.gateway.cassette.cassette import load_cassette
            from geminids.gateway.cassette.replay import Replaying

            return Replaying(load_cassette(options.replay), secrets=secrets, on_remark=self._remark)
        from geminids.gateway.forward.forward import Forwarding, default_base_url
        from geminids.gateway.forward.network_settings import read_network_settings

        network = read_network_settings(env)
        credential = _credential(route, key, env, network)
        passing = Forwarding(route.base_url or default_base_url(credential, route.api), credential, network)
        if options.record is None:
            return passing
        from geminids.gateway.cassette.recording import Recording

        self._recording = Recording(passing, options.record, secrets=secrets, on_remark=self._remark)
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
            # Always with prices: another run of the same day may have a budget in dollars.
            budgets.append(DailyBudget(folder, day, pricing(table), is_recorded=not is_recorded_outside))
        return budgets

    def _pace(self, route: Route, key: str | None) -> RateLimiter | None:
        if route.sign_in == "none":
            return None
        from geminids.gateway.limits.rate_limiter import rate_limiter_for

        identity = key or f"{route.sign_in} {route.project} {route.location}"
        return rate_limiter_for(identity, route.base_url or "", self._options.requests_per_minute)


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
