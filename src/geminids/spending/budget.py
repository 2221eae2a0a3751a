"""Budgets: limits for the cost of requests.

The cost of a request is known only after its end. Therefore a budget reserves the minimum cost of
the request before it is sent, and replaces the reserved amount with the true cost later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from geminids.spending.prices import pricing
from geminids.spending.table import PriceTable
from geminids.spending.token_estimate import BYTES_PER_TOKEN
from geminids.spending.tokens import Counts

__all__ = [
    "BaseBudget",
    "Budget",
    "BudgetRefusal",
    "Hold",
    "Limits",
    "PriceOf",
    "Settle",
    "Spending",
    "over_budget",
]

# A function that returns the price of these tokens for this model, in dollars; None if it is
# unknown.
PriceOf = Callable[[str, Counts], Decimal | None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a budget, in dollars, tokens and requests. None means that there is no such
    limit.
    """

    dollars: float | None = None
    tokens: int | None = None
    requests: int | None = None

    @property
    def needs_tokens(self) -> bool:
        """Whether the tokens of each request must be counted. False if only the number of requests
        is limited.
        """
        return self.dollars is not None or self.tokens is not None

    def __bool__(self) -> bool:
        return (self.dollars, self.tokens, self.requests) != (None, None, None)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """An amount of dollars, tokens and requests. The dollars are exact (`Decimal`), because sums of
    very small prices are compared with a limit.
    """

    dollars: Decimal = Decimal(0)
    tokens: int = 0
    requests: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            dollars=self.dollars + other.dollars,
            tokens=self.tokens + other.tokens,
            requests=self.requests + other.requests,
        )

    def __sub__(self, other: Spending) -> Spending:
        return Spending(
            dollars=self.dollars - other.dollars,
            tokens=self.tokens - other.tokens,
            requests=self.requests - other.requests,
        )


class BudgetRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a budget refuses a request.

    `kind` is `over_budget` (the limit would be exceeded), `model` (the price of the model is
    unknown) or `unwritable` (the file that stores the budget cannot be written). `message` says
    what happened, and `hint` what the user can do.
    """

    kind: Literal["over_budget", "model", "unwritable"]
    message: str
    hint: str


# A function that is called once, with the true cost of a request.
Settle = Callable[[Spending], None]


class Hold:
    """The amount that a budget reserves for one request until the true cost is known. Call `settle`
    when the request has ended; only the first call has an effect.
    """

    def __init__(self, budget: BaseBudget, model: str, amount: Spending, settle: Settle) -> None:
        self._budget = budget
        self._model = model
        self._amount = amount
        self._settle: Settle | None = settle

    def settle(
        self, model: str | None, counts: Counts | None, *, begun: bool = False, is_free: bool = False
    ) -> None:
        """Replace the reserved amount with the true cost of the request.

        `model` is the model that answered; None if the request was not sent. `counts` are the
        tokens that the API reported; None if it reported none. `begun` is true if an answer had
        started. `is_free` is true if a script or a cassette answered: the request then costs no
        dollars.

        With `counts`, the true cost is the cost of these tokens. Without `counts`, a request that
        was not sent costs nothing. A request whose answer had started costs the reserved amount,
        and any other request costs no tokens, but counts as one request.
        """
        if counts is not None:
            cost = self._budget.cost_of(model or self._model, self._model, counts)
            self._end(msgspec.structs.replace(cost, dollars=Decimal(0)) if is_free else cost)
        elif model is None:
            self._end(Spending())
        else:
            self._end(self._amount if begun else Spending(requests=1))

    def _end(self, spent: Spending) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(spent)


class BaseBudget:
    """A budget: its limits, and the cost of the requests so far. Several threads can use it at the
    same time.

    `name` names the budget in messages, for example "this run". `price` is a function that computes
    the price of a request; it is None if the budget does not count dollars.
    """

    def __init__(self, name: str, limits: Limits, price: PriceOf | None = None) -> None:
        self.name = name
        self.limits = limits
        self._price = price
        self._lock = threading.Lock()
        self._spent = Spending()
        self._held = Spending()

    @property
    def folder(self) -> Path | None:
        """The folder with the files of the budget, if several processes share it. None if the
        budget exists only in this process.
        """
        return None

    @property
    def is_priced(self) -> bool:
        """Whether the budget counts dollars, and not only tokens and requests."""
        return self._price is not None

    @property
    def spent(self) -> Spending:
        """The total cost of the requests that have ended."""
        with self._lock:
            return self._spent

    def take(self, model: str | None, size: int, *, is_free: bool = False) -> Hold | BudgetRefusal:
        """Reserve the minimum cost of a request before it is sent, and return the reservation.
        Return a refusal instead if the limits would be exceeded, if the budget is in dollars and
        the price is unknown, or if the file of the budget cannot be written.

        `model` is the requested model. `size` is the size of the request in bytes, as
        `token_estimate.counted_bytes` computes it. `is_free` is true if a script or a cassette
        answers: no dollars are reserved.
        """
        model = model or ""
        min_tokens = size // BYTES_PER_TOKEN
        dollars = Decimal(0) if is_free else self._dollars(model, model, Counts(input=min_tokens))
        if dollars is None and self.limits.dollars is not None:
            return _unknown_price(self.name, model)
        amount = Spending(dollars=dollars or Decimal(0), tokens=min_tokens, requests=1)
        settle = self._reserve(model, amount)
        return settle if isinstance(settle, BudgetRefusal) else Hold(self, model, amount, settle)

    def cost_of(self, served: str, requested: str, counts: Counts) -> Spending:
        """Return the cost of one request with these token counts.

        `served` is the model that answered, and `requested` the model that the request named. The
        price of `served` is used or, if it is unknown, the price of `requested`. If both prices are
        unknown, the cost in dollars is 0.
        """
        dollars = self._dollars(served, requested, counts) or Decimal(0)
        return Spending(dollars=dollars, tokens=counts.total, requests=1)

    def _dollars(self, served: str, requested: str, counts: Counts) -> Decimal | None:
        if self._price is None:
            return None
        dollars = self._price(served, counts)
        return self._price(requested, counts) if dollars is None and served != requested else dollars

    def _reserve(self, model: str, amount: Spending) -> Settle | BudgetRefusal:
        """Reserve this amount for a request to `model`. Return a function that replaces the
        reserved amount with the true cost. Return a refusal instead if the limits would be
        exceeded, or if the file of the budget cannot be written.
        """
        with self._lock:
            refusal = over_budget(self.name, self.limits, self._spent, self._held, amount)
            if refusal is not None:
                return refusal
            self._held += amount
        return partial(self._settled, amount)

    def _settled(self, amount: Spending, spent: Spending) -> None:
        with self._lock:
            self._held -= amount
            self._spent += spent


class Budget(BaseBudget):
    """A budget that several runs, chats and pools can share. `spent` is the sum of the costs of all
    of them. Several threads can use a budget at the same time. Raises `ValueError` if no limit is
    set, or if a limit is not a number of 0 or more.

    >>> budget = Budget(dollars=2.5, requests=100)
    >>> budget.spent.requests
    0
    """

    def __init__(
        self,
        *,
        dollars: float | None = None,
        tokens: int | None = None,
        requests: int | None = None,
        prices: PriceTable | None = None,
        name: str = "this batch",
    ) -> None:
        for unit, limit in (("dollars", dollars), ("tokens", tokens), ("requests", requests)):
            if limit is not None and not 0 <= limit < float("inf"):
                raise ValueError(f"`{unit}` is {limit}: a budget must be a number of 0 or more")
        limits = Limits(dollars=dollars, tokens=tokens, requests=requests)
        if not limits:
            raise ValueError("a budget needs at least one limit: `dollars`, `tokens` or `requests`")
        super().__init__(name, limits, pricing(prices) if dollars is not None else None)


def over_budget(
    name: str, limits: Limits, spent: Spending, held: Spending, amount: Spending
) -> BudgetRefusal | None:
    """Return a refusal if one more request would exceed the limits; otherwise None.

    `name` is the name of the budget in the message. `spent` is the cost so far. `held` is the sum
    of the amounts that are reserved for requests in flight. `amount` is the minimum cost of the new
    request.

    >>> request = Spending(requests=1)
    >>> over_budget("this run", Limits(requests=1), request, Spending(), request).message
    'another request would exceed the budget of this run: 1 of 1 requests spent'
    """
    if limits.requests is not None and spent.requests + held.requests + amount.requests > limits.requests:
        used = f"{spent.requests:,} of {limits.requests:,} requests spent"
        return _refusal(name, "requests", used, f"{held.requests:,}" if held.requests else "", "")
    if limits.tokens is not None and spent.tokens + held.tokens + amount.tokens > limits.tokens:
        used = f"{spent.tokens:,} of {limits.tokens:,} tokens spent"
        return _refusal(name, "tokens", used, f"{held.tokens:,}" if held.tokens else "", f"{amount.tokens:,}")
    if limits.dollars is not None:
        limit = Decimal(str(limits.dollars))
        if spent.dollars + held.dollars + amount.dollars > limit:
            used = f"{_dollars(spent.dollars)} of {_dollars(limit)} spent"
            in_flight = _dollars(held.dollars) if held.dollars else ""
            return _refusal(name, "dollars", used, in_flight, _dollars(amount.dollars))
    return None


def _refusal(name: str, unit: str, used: str, in_flight: str, needed: str) -> BudgetRefusal:
    held = f", {in_flight} reserved for requests in flight" if in_flight else ""
    needs = f", this request needs at least {needed}" if needed else ""
    return BudgetRefusal(
        kind="over_budget",
        message=f"another request would exceed the budget of {name}: {used}{held}{needs}",
        hint=f"Allow more {unit}, or resume the session with another budget.",
    )


def _unknown_price(name: str, model: str) -> BudgetRefusal:
    return BudgetRefusal(
        kind="model",
        message=f"the price of model {model} is unknown, but {name} has a budget in dollars",
        hint="Set its price with `prices`, or limit tokens or requests instead of dollars.",
    )


def _dollars(amount: Decimal) -> str:
    """Format an amount of dollars with two to six decimals.

    >>> _dollars(Decimal("0.00001234")), _dollars(Decimal(5)), _dollars(Decimal("0.0341000"))
    ('$0.000012', '$5.00', '$0.0341')
    """
    text = f"{amount:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}"
