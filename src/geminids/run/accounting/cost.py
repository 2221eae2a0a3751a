"""Count the tokens and compute the cost of a run.

The price of each request is computed, and the prices are added up.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from geminids import spending  # loads its modules on first use
from geminids.errors import GeminidsError
from geminids.events.cost import Basis, Cost, ModelCost
from geminids.events.model import ModelUsage, TokensUsed, Usage
from geminids.gemini.protocol.stream_json import ModelStats, ProcessStats
from geminids.launch.auth import AuthMode
from geminids.launch.errors import Refused
from geminids.log import get_logger
from geminids.options import Options

if TYPE_CHECKING:
    from geminids.spending import PriceTable, Tokens

__all__ = ["Prices", "check_prices", "load_prices_early", "sum_of", "usage_of_requests", "usage_of_stats"]

_log = get_logger("run")


class Prices:
    """Computes the prices of one run's requests.

    `auth_mode`, the way in which the run signs in, decides which price applies. Requests with an
    API key cost the list price. Requests with Vertex AI or a Google account are billed in other
    ways: their price is known only if the caller's own price table (`options.prices`) contains the
    model.
    """

    def __init__(self, options: Options, auth_mode: AuthMode, *, metered: bool) -> None:
        """Store the settings on which the prices depend.

        `metered` is True if each request goes through the gateway.
        """
        self.free = options.is_simulated
        self._auth_mode: AuthMode = "none" if self.free else auth_mode
        self._file = options.prices
        self._model = options.model
        self._metered = metered
        self._table: PriceTable | None = None
        self._has_failed = False
        self.loaded = self.free

    def load(self) -> None:
        """Load the price list and the caller's price table.

        The first call takes about 0.17 s.
        """
        if self.loaded:
            return
        try:
            from geminids.spending.prices import warm_up  # imported late (6 ms), after the spawn

            warm_up()
            self._table = None if self._file is None else spending.read_prices(self._file)
        except Exception as error:
            # An error in the prices must not end a run: continue, and report an unknown cost.
            _log.error("cannot load the prices", error=error)
            self._has_failed = True
        self.loaded = True

    def priced(self, used: TokensUsed) -> TokensUsed:
        """Return the request `used` with its price filled in.

        The price is the amount that the user pays or, if this amount is unknown, the list price. If
        both are unknown, the request is returned unchanged. The price of a request with an HTTP
        error is 0, and so is the price of one that a script or a cassette answered.
        """
        if self.free or used.free or used.is_http_error:
            return msgspec.structs.replace(used, price=Decimal(0))
        if used.input is None:
            return used
        paid, listed = self._price(used.model, used, used.at)
        price = listed if paid is None else paid
        return used if price is None else msgspec.structs.replace(used, price=price)

    def total(self, requests: Sequence[TokensUsed], usage: Usage | None) -> Cost:
        """Return the cost of a run. `requests` are the requests of all its attempts.

        If the requests do not go through the gateway, the cost is estimated, usually from the CLI's
        own totals in `usage`.
        """
        if self.free:
            return Cost(usd=Decimal(0), basis="exact", auth_mode=self._auth_mode)
        if self._metered:
            answered = [request for request in requests if not request.is_http_error]
            if answered and all(request.free for request in answered):
                return Cost(usd=Decimal(0), basis="exact", auth_mode="none")
            answered = [request for request in answered if not request.free]
            known = [request for request in answered if request.input is not None]
            basis: Basis = "exact" if len(known) == len(answered) else "estimate"
            if answered and not known:
                return Cost(basis="unknown", auth_mode=self._auth_mode)
            return self._sum([(request.model, request, request.at) for request in known], basis)
        sums = self._estimated(requests, usage)
        return self._sum(sums, "estimate") if sums else Cost(basis="unknown", auth_mode=self._auth_mode)

    def _estimated(
        self, requests: Sequence[TokensUsed], usage: Usage | None
    ) -> list[tuple[str | None, Tokens, int | None]]:
        """Return the token counts from which the cost is estimated if there is no gateway.

        Each item of the list contains the model, the tokens and the time (Unix milliseconds, or
        None). There is one item for each model, with the CLI's totals. If these totals are missing,
        there is one item for each request in the CLI's session file.
        """
        models = [model for model in usage.models if model.input or model.output] if usage else []
        if models:
            return [(model.model, _with_thinking(model), None) for model in models]
        return [(request.model or self._model, request, request.at) for request in requests]

    def _sum(self, parts: Sequence[tuple[str | None, Tokens, int | None]], basis: Basis) -> Cost:
        by_model: dict[str, tuple[_Sum, _Sum]] = {}
        unpriced: dict[str, None] = {}
        paid, listed = _Sum(), _Sum()
        for model, tokens, at in parts:
            money, by_list = self._price(model, tokens, at)
            if money is None and by_list is None:
                unpriced[model or "a model without a name"] = None
            own = by_model.setdefault(model or "", (_Sum(), _Sum()))
            for total, amount in ((paid, money), (own[0], money), (listed, by_list), (own[1], by_list)):
                total.add(amount)
        known = paid.value is not None or listed.value is not None
        return Cost(
            usd=paid.value,
            basis=basis if known else "unknown",
            list_price=listed.value,
            auth_mode=self._auth_mode,
            models=tuple(
                ModelCost(model=model, usd=usd.value, list_price=price.value)
                for model, (usd, price) in by_model.items()
                if model
            ),
            unpriced=tuple(unpriced),
        )

    def _price(
        self, model: str | None, tokens: Tokens, at: int | None
    ) -> tuple[Decimal | None, Decimal | None]:
        """Return the price that the user pays for these tokens, and the list price of these tokens.

        A price is None if it is unknown. `at` is the time of the request in Unix milliseconds; it
        is None for a sum of several requests.
        """
        self.load()
        if self._has_failed:
            return None, None
        try:
            # If `at` is 0, the time is unknown.
            day = datetime.fromtimestamp(at / 1000, UTC).date() if at else None
            # The price of a token can rise with the size of its request (tiers). For a sum of
            # requests, use the lowest tier: most single requests of a long run are in that tier,
            # even if their sum is not.
            tier = None if at is not None else 0
            by_list = spending.price_of(model, tokens, day, tier_for=tier)
            own = (
                spending.price_of(model, tokens, day, self._table, tier_for=tier) if self._table else by_list
            )
        except Exception as error:
            _log.error("cannot price model %s", model, error=error)
            return None, None
        listed = None if by_list is None else by_list.usd
        if own is None or (self._auth_mode != "key" and own.source != "table"):
            return None, listed
        return own.usd, listed


class _Sum:
    """A sum of money. If one of its amounts is unknown (None), the sum is unknown (None)."""

    def __init__(self) -> None:
        self.value: Decimal | None = Decimal(0)

    def add(self, amount: Decimal | None) -> None:
        self.value = None if amount is None or self.value is None else self.value + amount


def _with_thinking(model: ModelUsage) -> ModelUsage:
    """Return the usage of a model. An unknown count of thinking tokens is replaced by an estimate.

    The estimate is the total minus input and output tokens, because most of the other tokens are
    thinking tokens. If the total, the input or the output is unknown, the usage is returned
    unchanged.
    """
    if model.thinking is not None or None in (model.total, model.input, model.output):
        return model
    rest = (model.total or 0) - (model.input or 0) - (model.output or 0)
    return msgspec.structs.replace(model, thinking=max(rest, 0))


def check_prices(options: Options) -> None:
    """Raise `Refused` if the caller's price table (`options.prices`) cannot be read.

    Called before the CLI starts.
    """
    if options.prices is not None:
        try:
            spending.read_prices(options.prices)
        except GeminidsError as error:
            raise Refused("bad_option", f"`prices`: {error.message}", error.hint or "") from None


def load_prices_early(options: Options) -> None:
    """Load the price list in a thread, before it is needed.

    Call this while the CLI waits for its first answer. An earlier call would slow down the start of
    the CLI.
    """
    global _loading
    prices = Prices(options, "none", metered=False)
    if not _loading and not prices.free:
        _loading = True
        threading.Thread(target=prices.load, name="geminids-prices", daemon=True).start()


_loading = False


_KINDS = ("input", "cached", "output", "thinking", "tool")


def usage_of_requests(requests: Sequence[TokensUsed]) -> Usage | None:
    """Add up the token counts of these requests. Return None if there are no requests."""
    if not requests:
        return None
    # Omit a model if all requests to it failed with an HTTP error.
    names = dict.fromkeys(
        request.model for request in requests if request.model and not request.is_http_error
    )
    return Usage(
        **_totals(requests),
        requests=len(requests),
        models=tuple(
            ModelUsage(model=name, **_totals([request for request in requests if request.model == name]))
            for name in names
        ),
    )


def _totals(requests: Sequence[TokensUsed]) -> dict[str, Any]:
    known = [request for request in requests if request.input is not None]
    totals = {kind: _sum([getattr(request, kind) for request in known]) for kind in _KINDS}
    total = _sum([totals[kind] for kind in _KINDS if kind != "cached"])
    return {**totals, "total": total, "unknown": len(requests) - len(known)}


def usage_of_stats(stats: ProcessStats | None) -> Usage | None:
    """Convert the CLI's own token totals to a `Usage`. Return None if they contain no token count.

    The CLI's `input_tokens` include cached tokens. Its `output_tokens` do not include thinking
    tokens. Programs other than the CLI that write the same format may leave out the total or the
    cached tokens. A count that is missing is None in the result.
    """
    if stats is None or all(
        count is None for count in (stats.input_tokens, stats.cached, stats.output_tokens, stats.total_tokens)
    ):
        return None
    return Usage(
        input=stats.input_tokens,
        cached=stats.cached,
        output=stats.output_tokens,
        thinking=_if_none(stats),
        tool=_if_none(stats),
        total=stats.total_tokens,
        models=tuple(
            ModelUsage(
                model=name,
                input=model.input_tokens,
                cached=model.cached,
                output=model.output_tokens,
                thinking=_if_none(model),
                tool=_if_none(model),
                total=model.total_tokens,
            )
            for name, model in stats.models.items()
        ),
    )


def sum_of(usages: Sequence[Usage | None]) -> Usage | None:
    """Add up the usage of several attempts.

    An item of `usages` is None if its attempt never reached the model. Return None if all items are
    None.
    """
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    names = (*_KINDS, "total")
    models: dict[str, list[ModelUsage]] = {}
    for usage in known:
        for model in usage.models:
            models.setdefault(model.model, []).append(model)
    return Usage(
        **{name: _sum([getattr(usage, name) for usage in known]) for name in (*names, "requests")},
        unknown=sum(usage.unknown for usage in known),
        models=tuple(
            ModelUsage(
                model=name,
                **{kind: _sum([getattr(part, kind) for part in parts]) for kind in names},
                unknown=sum(part.unknown for part in parts),
            )
            for name, parts in models.items()
        ),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _if_none(stats: ProcessStats | ModelStats) -> int | None:
    """Return the number of thinking tokens and of tool tokens if it is certainly 0, otherwise None.

    If the total is input plus output or less, no token is left for thinking or tools: return 0. If
    the total is more, the difference may be thinking or tool tokens, but it is unknown which:
    return None. Also return None if one of the three counts is missing.
    """
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return 0 if stats.total_tokens <= stats.input_tokens + stats.output_tokens else None
