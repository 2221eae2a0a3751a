"""A budget: an estimate is held before a request is sent, and settled when its tokens are known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import msgspec

from geminids.gateway.told import Counts, Halt

__all__ = [
    "BYTES_A_TOKEN",
    "Hold",
    "Limits",
    "PriceOf",
    "Purse",
    "Settle",
    "Spending",
    "counted_bytes",
    "over_budget",
]

# What these tokens of this model cost in dollars; None where nobody knows.
PriceOf = Callable[[str, Counts], Decimal | None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be spent at most; None is no limit."""

    dollars: float | None = None
    tokens: int | None = None
    requests: int | None = None

    @property
    def spares_tokens(self) -> bool:
        """Whether it matters what a request costs, and not only that there was one."""
        return self.dollars is not None or self.tokens is not None

    def __bool__(self) -> bool:
        return (self.dollars, self.tokens, self.requests) != (None, None, None)


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What has been spent. Dollars are exact: sums of prices are compared with a limit."""

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


# Told once what became of the amount that was held.
Settle = Callable[[Spending], None]


class Hold:
    """What one request has taken, until its true price is known. Only the first of several endings counts."""

    def __init__(self, purse: Purse, model: str, wanted: Spending, settle: Settle) -> None:
        self._purse = purse
        self._model = model
        self._wanted = wanted
        self._settle: Settle | None = settle

    def settle(self, model: str | None, counts: Counts | None, *, begun: bool = False) -> None:
        """The request is over: with what its answer told, or (no model) without having left.

        An answer that had `begun` and was cut before it told any tokens costs what was held. A request that failed
        costs itself, and no tokens.
        """
        if counts is not None:
            self._end(self._purse.cost_of(model or self._model, self._model, counts))
        elif model is None:
            self._end(Spending())
        else:
            self._end(self._wanted if begun else Spending(requests=1))

    def _end(self, spent: Spending) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(spent)


class Purse:
    """What the requests of a run, a chat or a batch have spent together. Safe from any thread."""

    def __init__(self, whose: str, limits: Limits, price: PriceOf | None = None) -> None:
        self.whose = whose
        self.limits = limits
        self._price = price
        self._lock = threading.Lock()
        self._spent = Spending()
        self._held = Spending()

    @property
    def folder(self) -> Path | None:
        """The folder that other processes share it by, if they do."""
        return None

    @property
    def is_priced(self) -> bool:
        """Whether it counts dollars."""
        return self._price is not None

    @property
    def spent(self) -> Spending:
        """What the requests that are over have taken."""
        with self._lock:
            return self._spent

    def take(self, model: str | None, size: int) -> Hold | Halt:
        """Hold what a request of so many bytes (`estimate.counted_bytes`) will take at least; a `Halt` where that
        does not fit."""
        model = model or ""
        least = size // BYTES_A_TOKEN
        dollars = self._dollars(model, model, Counts(input=least))
        if dollars is None and self.limits.dollars is not None:
            return _without_price(self.whose, model)
        wanted = Spending(dollars=dollars or Decimal(0), tokens=least, requests=1)
        settle = self._reserve(model, wanted)
        return settle if isinstance(settle, Halt) else Hold(self, model, wanted, settle)

    def cost_of(self, served: str, asked: str, counts: Counts) -> Spending:
        """What one request costs, by the price of the model that served it, or else of the one that was asked for."""
        dollars = self._dollars(served, asked, counts) or Decimal(0)
        return Spending(dollars=dollars, tokens=counts.total, requests=1)

    def _dollars(self, served: str, asked: str, counts: Counts) -> Decimal | None:
        if self._price is None:
            return None
        dollars = self._price(served, counts)
        return self._price(asked, counts) if dollars is None and served != asked else dollars

    def _reserve(self, model: str, wanted: Spending) -> Settle | Halt:
        """Hold this much, and say who is told what it became."""
        with self._lock:
            halt = over_budget(self.whose, self.limits, self._spent, self._held, wanted)
            if halt is not None:
                return halt
            self._held += wanted
        return partial(self._settled, wanted)

    def _settled(self, wanted: Spending, spent: Spending) -> None:
        with self._lock:
            self._held -= wanted
            self._spent += spent


def over_budget(whose: str, limits: Limits, spent: Spending, held: Spending, wanted: Spending) -> Halt | None:
    """Why a request may not leave; None where it may.

    >>> one = Spending(requests=1)
    >>> over_budget("this run", Limits(requests=1), one, Spending(), one).message
    'the budget of this run has no room for another request: 1 of 1 requests spent'
    """
    if limits.requests is not None and spent.requests + held.requests + wanted.requests > limits.requests:
        told = f"{spent.requests:,} of {limits.requests:,} requests spent"
        return _halt(whose, "requests", told, f"{held.requests:,}" if held.requests else "", "")
    if limits.tokens is not None and spent.tokens + held.tokens + wanted.tokens > limits.tokens:
        told = f"{spent.tokens:,} of {limits.tokens:,} tokens spent"
        return _halt(whose, "tokens", told, f"{held.tokens:,}" if held.tokens else "", f"{wanted.tokens:,}")
    if limits.dollars is not None:
        limit = Decimal(str(limits.dollars))
        if spent.dollars + held.dollars + wanted.dollars > limit:
            told = f"{_dollars(spent.dollars)} of {_dollars(limit)} spent"
            on_way = _dollars(held.dollars) if held.dollars else ""
            return _halt(whose, "dollars", told, on_way, _dollars(wanted.dollars))
    return None


def _halt(whose: str, unit: str, told: str, on_way: str, least: str) -> Halt:
    held = f", {on_way} held by requests on their way" if on_way else ""
    takes = f", and this one takes {least} at least" if least else ""
    return Halt(
        kind="over_budget",
        message=f"the budget of {whose} has no room for another request: {told}{held}{takes}",
        hint=f"Allow more {unit}, or go on with the session under another budget.",
    )


def _without_price(whose: str, model: str) -> Halt:
    return Halt(
        kind="model",
        message=f"nobody knows what model {model} costs, and {whose} has a budget in dollars",
        hint="Give its price with Budget(dollars=…, prices=[…]), or limit tokens or requests in place of dollars.",
    )


def _dollars(amount: Decimal) -> str:
    """
    >>> _dollars(Decimal("0.00001234")), _dollars(Decimal(5)), _dollars(Decimal("0.0341000"))
    ('$0.000012', '$5.00', '$0.0341')
    """
    text = f"{amount:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}"


# Text and JSON have three to four bytes a token, other scripts fewer.
BYTES_A_TOKEN = 4
# The smallest price of a picture, and of a page; its base64 is no text.
_A_PICTURE = 258
_MEDIA = b'"inlineData"'
# What a model thought, sealed by the API: sent back with each call of a tool, and no text either.
_SEAL = b'"thoughtSignature"'


def counted_bytes(raw: bytes) -> int:
    """The bytes of a request that are text. A picture counts as the text that costs as much, whatever its size.

    >>> counted_bytes(b'{"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}')
    1098
    """
    size, behind = len(raw), 0
    for begins, ends in _strings(raw, _MEDIA, b'"data"', 0, len(raw)):
        # Nothing is looked for within a picture: that would take ten times longer than to step over it.
        size += BYTES_A_TOKEN * _A_PICTURE - (ends - begins) - _sealed(raw, behind, begins)
        behind = ends
    return size - _sealed(raw, behind, len(raw))


def _sealed(raw: bytes, start: int, end: int) -> int:
    return sum(ends - begins for begins, ends in _strings(raw, _SEAL, _SEAL, start, end))


def _strings(raw: bytes, mark: bytes, key: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the strings of this key begin and end that stand behind the mark.

    A mark within a text is no mark: its quotes have backslashes there. Base64 has neither quotes nor backslashes, so
    a string ends at the next quote.
    """
    at = raw.find(mark, start, end)
    while at >= 0:
        found = raw.find(key, at, end)
        colon = raw.find(b":", found + len(key), end) if found >= 0 else -1
        begins = raw.find(b'"', colon, end) + 1 if colon >= 0 else 0
        ends = raw.find(b'"', begins, end)
        if not at < begins <= ends:
            return
        yield begins, ends
        at = raw.find(mark, ends, end)
