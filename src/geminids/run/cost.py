"""What a run costs: its requests one by one where they are known, else its sums."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from geminids.events.cost import Basis, Cost, ModelCost
from geminids.events.fold import Fold
from geminids.events.ledger import Ledger, without_blanks
from geminids.events.model import ModelUsage, TokensUsed, Usage
from geminids.launch.auth import AuthMode
from geminids.options import Options
from geminids.outcome import Outcome

if TYPE_CHECKING:
    from geminids.prices import PriceTable

__all__ = ["Bill", "bill_of", "cost_of", "prepare"]


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays for a run, by which prices, and whether the gateway has seen each of its requests.

    `model` is what was asked for: old releases tell sums without a name. `summed`: the CLI counts for itself, so that
    a request which its journal does not have is missed. `free`: no real model was asked.
    """

    auth_mode: AuthMode
    model: str | None = None
    prices: str | None = None
    overseen: bool = False
    summed: bool = True
    free: bool = False


def bill_of(
    options: Options, auth_mode: AuthMode, *, model: str | None, overseen: bool, summed: bool = True
) -> Bill:
    free = _is_free(options)
    return Bill(
        auth_mode="none" if free else auth_mode,
        model=model,
        prices=options.prices,
        overseen=overseen,
        summed=summed,
        free=free,
    )


def _is_free(options: Options) -> bool:
    """Whether no real model is asked."""
    return options.offline or options.replay is not None


def prepare(options: Options) -> None:
    """Have the prices at hand when the run ends: to be called when the CLI has loaded, and waits for its first answer.

    Not before: they take a sixth of a second of what the CLI needs to load.
    """
    global _prepared
    if not _prepared and not _is_free(options):
        _prepared = True
        threading.Thread(target=_warm_up, name="geminids-prices", daemon=True).start()


_prepared = False


def _warm_up() -> None:
    from geminids.prices import warm_up

    warm_up()


def cost_of(fold: Fold, ledger: Ledger, usage: Usage | None, bill: Bill, outcome: Outcome) -> Cost:
    """What all attempts of a run cost together; `usage` is that of all of them, or of those that have told one."""
    if bill.free:
        return Cost(usd=Decimal(0), basis="exact", auth_mode=bill.auth_mode)
    try:
        parts, basis = _counted(fold, ledger, usage, bill, outcome)
        return _priced(parts, basis, bill)
    except Exception:
        # A mistake of ours about money must not cost the caller the ending.
        return Cost(basis="unknown", auth_mode=bill.auth_mode)


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that are priced together: one request, or the sums of several, whose tier nobody knows (`sums`)."""

    model: str | None
    input: int | None
    cached: int | None
    output: int | None
    thinking: int | None
    tool: int | None
    at: int | None = None
    sums: bool = False


def _counted(
    fold: Fold, ledger: Ledger, usage: Usage | None, bill: Bill, outcome: Outcome
) -> tuple[list[_Part], Basis]:
    """What is to be priced, and how sure that is."""
    requests = [*fold.earlier, *fold.tokens]
    parts = [_request(one) for one in requests]
    if bill.overseen:
        if not parts and ledger.uncounted:
            return [], "unknown"
        return parts, "exact" if not ledger.uncounted and all(map(_whole, parts)) else "estimate"
    if usage is not None and not _agree(usage, requests) and not _agree(usage, fold.tokens):
        parts = _sums(usage, bill)
        return parts, "estimate" if parts else "unknown"
    if not parts:
        return [], "unknown"
    whole = _is_whole(fold, ledger, usage, bill, outcome) and all(map(_whole, parts))
    return _with_rest(parts, usage), "exact" if whole else "estimate"


def _is_whole(fold: Fold, ledger: Ledger, usage: Usage | None, bill: Bill, outcome: Outcome) -> bool:
    """Whether, without the gateway, no request can be missing: two that count for themselves have the same.

    The journal has what was answered, and not what was cut, nor an answer that the CLI threw away and asked for anew.
    """
    requests = [*fold.earlier, *fold.tokens]
    if not bill.summed or outcome != "success" or ledger.uncounted:
        return False
    if usage is None or usage.requests != len(requests):
        return False
    if len({one.attempt for one in requests}) != fold.attempts:
        return False
    return without_blanks(fold.text) <= ledger.written


def _with_rest(parts: Sequence[_Part], usage: Usage | None) -> list[_Part]:
    """What the CLI's total has over all that is known of a model is thinking, of the errand that tells none."""
    if usage is None:
        return list(parts)
    by_model = bool(usage.models) and all(part.model for part in parts)
    left: dict[str | None, int] = {one.model: one.total or 0 for one in usage.models}
    left[None] = usage.total or 0
    for part in parts:
        for key in (part.model, None) if part.model else (None,):
            left[key] = left.get(key, 0) - _known(part)
    filled = []
    for part in parts:
        if part.thinking is None and part.tool is None:
            rest = left.pop(part.model if by_model else None, 0)
            part = msgspec.structs.replace(part, thinking=max(rest, 0))
        filled.append(part)
    return filled


def _known(part: _Part) -> int:
    return sum(count or 0 for count in (part.input, part.output, part.thinking, part.tool))


def _request(one: TokensUsed) -> _Part:
    return _Part(
        model=one.model,
        input=one.input,
        cached=one.cached,
        output=one.output,
        thinking=one.thinking,
        tool=one.tool,
        at=one.at,
    )


def _whole(part: _Part) -> bool:
    return None not in (part.input, part.cached, part.output, part.thinking, part.tool)


def _agree(usage: Usage, requests: Sequence[TokensUsed]) -> bool:
    """Whether the requests are all that the CLI has summed up, each with its model."""
    for name in ("input", "output"):
        parts = [getattr(one, name) for one in requests]
        if None in parts or sum(parts) != (getattr(usage, name) or 0):
            return False
    return bool(requests) and (not usage.models or all(one.model for one in requests))


def _sums(usage: Usage, bill: Bill) -> list[_Part]:
    """The sums of the CLI. Zeros are none: it tells them too where it has counted nothing."""
    if not usage.input and not usage.output:
        return []
    if usage.models:
        return [_sum(one, one.model) for one in usage.models if one.input or one.output]
    return [_sum(usage, bill.model)]


def _sum(counts: Usage | ModelUsage, model: str | None) -> _Part:
    thinking = counts.thinking
    if thinking is None and None not in (counts.total, counts.input, counts.output):
        # What the total has over them is thinking for the most part.
        thinking = max((counts.total or 0) - (counts.input or 0) - (counts.output or 0), 0)
    return _Part(
        model=model,
        input=counts.input,
        cached=counts.cached,
        output=counts.output,
        thinking=thinking,
        tool=counts.tool,
        sums=True,
    )


class _Sum:
    """Money that is added up, and unknown as soon as one summand is."""

    def __init__(self) -> None:
        self.value: Decimal | None = Decimal(0)

    def add(self, amount: Decimal | None) -> None:
        self.value = None if amount is None or self.value is None else self.value + amount


def _priced(parts: Sequence[_Part], basis: Basis, bill: Bill) -> Cost:
    if basis == "unknown":
        return Cost(basis="unknown", auth_mode=bill.auth_mode)
    names = {part.model for part in parts if part.model}
    # A request without a name, where all others were to one model, was to that one.
    usual = names.pop() if len(names) == 1 else bill.model
    table = _table(bill)
    by_model: dict[str, tuple[_Sum, _Sum]] = {}
    unpriced: dict[str, None] = {}
    paid, listed = _Sum(), _Sum()
    for part in parts:
        model = part.model or usual or ""
        money, by_list = _prices(part, model, table, bill)
        if money is None and by_list is None:
            unpriced[model or "a model without a name"] = None
        own = by_model.setdefault(model, (_Sum(), _Sum()))
        for total, amount in ((paid, money), (own[0], money), (listed, by_list), (own[1], by_list)):
            total.add(amount)
    models = tuple(
        ModelCost(model=model, usd=usd.value, list_price=price.value)
        for model, (usd, price) in by_model.items()
        if model
    )
    known = paid.value is not None or listed.value is not None
    return Cost(
        usd=paid.value,
        basis=basis if known else "unknown",
        list_price=listed.value,
        auth_mode=bill.auth_mode,
        models=models,
        unpriced=tuple(unpriced),
    )


def _prices(
    part: _Part, model: str, table: PriceTable | None, bill: Bill
) -> tuple[Decimal | None, Decimal | None]:
    """What is paid for it, and its list price."""
    from geminids.prices import price_of

    # 0 is a time that nobody knows.
    day = None if not part.at else datetime.fromtimestamp(part.at / 1000, UTC).date()
    # Requests of a long run are below the tier for the most part, and their sum is above it.
    tier = 0 if part.sums else None
    by_list = price_of(model, part, day, tier_for=tier)
    own = price_of(model, part, day, table, tier_for=tier) if table else by_list
    listed = None if by_list is None else by_list.usd
    if own is None or (bill.auth_mode != "key" and own.source != "table"):
        return None, listed
    return own.usd, listed


def _table(bill: Bill) -> PriceTable | None:
    if bill.prices is None:
        return None
    from geminids.prices import read_prices

    return read_prices(bill.prices)
