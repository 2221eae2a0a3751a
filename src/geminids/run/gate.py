"""Whether a run's requests go through the gateway, with whose key, and under which terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from geminids.errors import GeminidsError
from geminids.events.model import Level
from geminids.launch.auth import Auth
from geminids.launch.gate import (
    STAND_IN,
    Given,
    asked_for,
    is_risky,
    keeps_journal,
    kept_by_cli,
    needs_gateway,
    needs_journal,
    needs_key,
)
from geminids.launch.refused import Refused
from geminids.options import Options
from geminids.options.checks import LIMITS
from geminids.run.mailbox import Mailbox
from geminids.toolchain.releases import Release

if TYPE_CHECKING:
    from geminids.gateway.host import OpenLease
    from geminids.gateway.pace import Pace
    from geminids.gateway.purse import Purse
    from geminids.gateway.recording import Recording
    from geminids.gateway.told import Told
    from geminids.gateway.under_way import UnderWay
    from geminids.gateway.upstream import Upstream
    from geminids.run.allowance import Allowance
    from geminids.run.errands import Errands

__all__ = ["RunGate"]

_BASE = "GOOGLE_GEMINI_BASE_URL"
_KEY = "GEMINI_API_KEY"
_SHORTEST = 4


class RunGate:
    """The gate of one run or chat. `lease` is there once it was opened; `notices` are for the run to tell."""

    def __init__(
        self,
        options: Options,
        *,
        whose: str = "this run",
        budgets: Sequence[Purse] = (),
        by_session: bool = False,
    ) -> None:
        """`by_session`: the token is not in the environment, which many chats share, and is given to each session."""
        self.mailbox: Mailbox[Told] = Mailbox()
        self.lease: OpenLease | None = None
        self.notices: list[tuple[Level, str, str]] = []
        self.errands: Errands | None = None
        """Who writes down what the CLI asks for itself in the run or turn that goes on."""
        self._options = options
        self._whose = whose
        self._by_session = by_session
        self._budgets = tuple(budgets)
        self._recording: Recording | None = None
        self._counted: tuple[Purse, ...] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a lane has to do with it: by its lease, or by the budgets that are kept without one."""
        return self.lease is not None or self._counted is not None

    def allowance(self) -> Allowance | None:
        """The budgets of a run or turn whose requests do not go through the gateway."""
        if self._counted is None:
            return None
        from geminids.run.allowance import Allowance

        return Allowance(self._counted)

    @property
    def is_dead(self) -> bool:
        """Whether the gateway has died under it: who knows its address knows nothing of use."""
        return self.lease is not None and not self.lease.usable

    @property
    def token(self) -> str | None:
        """What a session has to give as its key, where the environment does not."""
        return self.lease.token if self.lease is not None and self._by_session else None

    @property
    def busy(self) -> bool:
        """Whether a request has not come to its end."""
        return self.lease is not None and self.lease.lease.under_way > 0

    @property
    def under_way(self) -> list[UnderWay]:
        """The requests that have not come to their end, as they stand now."""
        return [] if self.lease is None else self.lease.lease.now()

    @property
    def purses(self) -> tuple[Purse, ...]:
        """The budgets that hold here, for whoever shares them."""
        return self.lease.lease.purses if self.lease is not None else self._counted or self._budgets

    def open(self, env: Mapping[str, str], auth: Auth, release: Release) -> Given:
        """What the CLI gets: a token in place of the key; raises `Refused` where that cannot be."""
        options = self._options
        wanted = asked_for(options)
        limited = bool(self._budgets) or any(getattr(options, name) for name in LIMITS)
        self._check_prices()
        if options.offline or options.replay is not None:
            return self._leased(env, key=None)
        if options.gateway == "off" and limited:
            return self._without(env, release, "it is off")
        if options.gateway == "off" or not (wanted or self._budgets or is_risky(options)):
            return Given(dict(env))
        key = self._key(env)
        if auth.mode == "key" and key is not None:
            return self._leased(env, key)
        if auth.mode == "none":
            if wanted or self._budgets:
                # The CLI may find a key for itself, in a trusted folder's own .env, and go past us with it.
                raise Refused(
                    "auth",
                    f"no way to sign in was found, and {wanted or 'a budget'} needs an API key",
                    "Set GEMINI_API_KEY, or name the key with key_from. A key in the folder's .env is the CLI's alone.",
                )
            return Given(dict(env))  # there is no way to sign in at all: the run will say so
        if needs := needs_gateway(options):
            raise needs_key(needs, auth)
        if limited:
            return self._without(env, release, kept_by_cli(auth))
        open_to_tools = "a tool of this run could read the sign-in, and requests are not seen one by one"
        told = f"no gateway: {kept_by_cli(auth)}; {open_to_tools}"
        self.notices.append(("info", "gateway", told))
        return Given(dict(env))

    def _without(self, env: Mapping[str, str], release: Release, why: str) -> Given:
        """Budgets without the gateway: what the journal tells of requests is counted while the run goes on."""
        if not keeps_journal(release):
            raise needs_journal(why)
        if self._counted is None:
            self._counted = tuple(self._purses())
            told = (
                f"the budget is kept without the gateway ({why}): a request counts once it is answered, so that one "
                "more may be spent; those of the CLI's own, such as the router's, are not seen"
            )
            self.notices.append(("info", "gateway", told))
        return Given(dict(env))

    def _check_prices(self) -> None:
        """Whether the caller's price table can be used: before anything is started."""
        if self._options.prices is not None:
            from geminids.prices import read_prices

            try:
                read_prices(self._options.prices)
            except GeminidsError as error:
                raise Refused("bad_option", f"prices: {error.message}", error.hint or "") from None

    def take_notices(self) -> list[tuple[Level, str, str]]:
        told, self.notices = self.notices, []
        return told

    def begin(self) -> None:
        """Let the gateway answer: the CLI has been spawned."""
        if self.lease is not None:
            self.lease.begin()
            if any(purse.is_priced for purse in self.purses):
                import threading

                from geminids.prices import warm_up

                # While the CLI loads: the first request would wait for it.
                threading.Thread(target=warm_up, name="geminids-prices", daemon=True).start()

    def close(self) -> None:
        """The token is worth nothing from now on."""
        if self.lease is not None:
            self.lease.close()
        if self._recording is not None:
            self._recording.close()
        self.mailbox.close()

    def _key(self, env: Mapping[str, str]) -> str | None:
        if self._options.key_from is None:
            # Spaces around it are none of the key: another variable may hold it without them.
            given = env.get(_KEY)
            return given if given is None else given.strip()
        from geminids.gateway.keys import read_key

        try:
            return read_key(self._options.key_from)
        except GeminidsError as error:
            raise Refused("bad_option", f"key_from: {error.message}", error.hint or "") from None

    def _leased(self, env: Mapping[str, str], key: str | None) -> Given:
        from geminids.launch.gatewayed import gatewayed_environment

        # A shorter one would mask ordinary words (see `redact`).
        secrets = frozenset((key,)) if key is not None and len(key) >= _SHORTEST else frozenset[str]()
        if self.lease is None:
            self.lease = self._opened(env, key, secrets)
        elif not self.lease.usable:
            self.lease = self.lease.renewed()
            self.lease.begin()  # at once: the run, or its first attempt, has begun long ago
            # A chat that was silent has not heard of the death, and has no use for it any more.
            for letter in self.mailbox.take():
                if getattr(letter, "kind", None) != "gone":
                    self.mailbox.put(letter)
        token = STAND_IN if self._by_session else self.lease.token
        given = gatewayed_environment(env, key, self.lease.url, token)
        return Given(given, secrets | {self.lease.token}, hides=key is not None, gatewayed=True)

    def _opened(self, env: Mapping[str, str], key: str | None, secrets: frozenset[str]) -> OpenLease:
        from geminids.gateway.host import open_lease
        from geminids.gateway.lease import Lease

        try:
            upstream = self._upstream(env, key, secrets)
            lease = Lease(
                upstream,
                self.mailbox.put,
                purses=self._purses(),
                pace=self._pace(env, key),
                wake=self.mailbox.wake,
                only_models=self._options.only_models,
            )
            return open_lease(lease)
        except GeminidsError as error:
            raise Refused("bad_option", error.message, error.hint or "") from None

    def _upstream(self, env: Mapping[str, str], key: str | None, secrets: frozenset[str]) -> Upstream:
        options = self._options
        if options.offline:
            from geminids.gateway.offline import offline_scene
            from geminids.gateway.scripted import Scripted

            return Scripted(offline_scene())
        from geminids.redact import secrets_of

        known = secrets | secrets_of(env)
        if options.replay is not None:
            from geminids.gateway.cassette import load_cassette
            from geminids.gateway.replaying import Replaying

            return Replaying(load_cassette(options.replay), secrets=known, on_remark=self._remark)
        assert key is not None
        from geminids.gateway.passing import GOOGLE, Passing
        from geminids.gateway.way import way_of

        passing = Passing(env.get(_BASE) or GOOGLE, key, way_of(env))
        if options.record is None:
            return passing
        from geminids.gateway.recording import Recording

        self._recording = Recording(passing, options.record, secrets=known, on_remark=self._remark)
        return self._recording

    def _remark(self, text: str) -> None:
        from geminids.gateway.told import Remark

        code = "record" if self._options.record is not None else "replay"
        self.mailbox.put(Remark(code=code, text=text))

    def _purses(self) -> list[Purse]:
        options = self._options
        from geminids.gateway.purse import Limits, Purse

        own = Limits(dollars=options.max_budget, tokens=options.max_tokens, requests=options.max_requests)
        day = Limits(dollars=options.day_budget, tokens=options.day_tokens, requests=options.day_requests)
        price = None
        # The day's file is read by runs that have a budget in dollars: what each one costs is written in any case.
        if own.dollars is not None or day:
            from geminids.prices import pricing, read_prices

            price = pricing(None if options.prices is None else read_prices(options.prices))
        purses = [*self._budgets]
        if own:
            purses.append(Purse(self._whose, own, price))
        if day:
            from geminids.config.places import Places
            from geminids.gateway.day import DayPurse

            purses.append(DayPurse(Places.of().root / "spent", day, price))
        return purses

    def _pace(self, env: Mapping[str, str], key: str | None) -> Pace | None:
        if key is None:
            return None
        from geminids.gateway.pace import pace_for

        return pace_for(key, env.get(_BASE) or "", self._options.requests_per_minute)
