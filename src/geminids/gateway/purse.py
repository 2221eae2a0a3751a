"""A purse: what may be spent, held before a request leaves and settled when its tokens are known."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from geminids.gateway.told import Counts, Halt

__all__ = ["Hold", "Limits", "Price", "Purse", "Spending", "over_budget"]

# What these tokens of this model cost in dollars; None where nobody knows.
Price = Callable[[str | None, Counts], float | None]
# A token is some four bytes of a request.
_BYTES = 4


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be spent at most; None is no limit."""

    dollars: float | None = None
    tokens: int | None = None
    requests: int | None = None

    def __bool__(self) -> bool:
        return (self.dollars, self.tokens, self.requests) != (None, None, None)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What has been spent."""

    dollars: float = 0.0
    tokens: int = 0
    requests: int = 0


class Hold(Protocol):
    """What one request has taken, until its true price is known."""

    def settle(self, model: str | None, counts: Counts | None) -> None:
        """The request is over: with `counts`, with an answer that told none, or (no model) without having left."""
        ...


class Purse:
    """What the requests of a run, a chat or a batch have spent together. Safe from any thread."""

    def __init__(self, whose: str, limits: Limits, price: Price | None = None) -> None:
        self._whose = whose
        self._limits = limits
        self._price = price
        self._lock = threading.Lock()
        self._spent = Spending()
        self._held = Spending()

    @property
    def spent(self) -> Spending:
        with self._lock:
            return self._spent

    def take(self, model: str | None, size: int) -> Hold | Halt:
        """Hold what a request of so many bytes will take at least; a `Halt` where the purse has not that much."""
        counts = Counts(input=size // _BYTES, output=0, cached=0, thinking=0, tool=0)
        wanted = Spending(dollars=self._cost(model, counts), tokens=counts.total, requests=1)
        with self._lock:
            halt = over_budget(self._whose, self._limits, self._spent, self._held, wanted)
            if halt is None:
                self._held = _sum(self._held, wanted)
        return _Held(self, wanted) if halt is None else halt

    def settled(self, wanted: Spending, model: str | None, counts: Counts | None) -> None:
        """A request is over: what it held is given back, what it took is spent."""
        left = model is not None
        spent = wanted
        if counts is not None:
            spent = Spending(dollars=self._cost(model, counts), tokens=counts.total, requests=1)
        elif left:
            spent = Spending(requests=1)  # an error costs nothing but the request
        with self._lock:
            self._held = _sum(self._held, wanted, -1)
            if left:
                self._spent = _sum(self._spent, spent)

    def _cost(self, model: str | None, counts: Counts) -> float:
        return (self._price(model, counts) or 0.0) if self._price is not None else 0.0


class _Held:
    def __init__(self, purse: Purse, wanted: Spending) -> None:
        self._purse = purse
        self._wanted = wanted

    def settle(self, model: str | None, counts: Counts | None) -> None:
        self._purse.settled(self._wanted, model, counts)


def over_budget(
    whose: str, limits: Limits, spent: Spending, held: Spending, wanted: Spending
) -> Halt | None:
    """Why a request may not leave; None where it may."""
    for name, unit in (("requests", "requests"), ("tokens", "tokens"), ("dollars", "dollars")):
        limit = getattr(limits, name)
        if limit is None:
            continue
        taken = getattr(spent, name)
        if taken + getattr(held, name) + getattr(wanted, name) > limit:
            amount = f"${taken:.4f} of ${limit:g}" if name == "dollars" else f"{taken:,} of {limit:,} {unit}"
            return Halt(
                kind="over_budget",
                message=f"the budget of {whose} is spent: {amount}, and the next request does not fit",
                hint=f"Allow more {unit}, or resume the session with another budget.",
            )
    return None


def _sum(one: Spending, other: Spending, sign: int = 1) -> Spending:
    return Spending(
        dollars=one.dollars + sign * other.dollars,
        tokens=one.tokens + sign * other.tokens,
        requests=one.requests + sign * other.requests,
    )
