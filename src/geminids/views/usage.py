"""What stored sessions have used, priced and summed up: by day, model, project, session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Literal

import msgspec

from geminids.prices import PriceTable, price_of
from geminids.prices.table import rates_in
from geminids.sessions.usage import Request, Spent, StoredUsage, Trouble

__all__ = ["FOOTNOTE", "KEYS", "Key", "Report", "Row", "Used", "grouped", "report_of", "used"]

Key = Literal["day", "model", "project", "session"]
KEYS: tuple[Key, ...] = ("day", "model", "project", "session")
FOOTNOTE = (
    "What the CLI asks for itself (errands: the router of `auto`, summaries, loop checks, searches) is in no session "
    "file: it is counted for runs of geminids through its gateway, and missing for all others. What failed is missing."
)
UNKNOWN = "unknown"


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What one conversation used on one day of one model; `usd` None where nobody knows the price.

    `errands`: what the CLI asked for itself in it, apart from the rest.
    """

    day: str
    model: str
    project: str
    session: str
    requests: int
    tokens: Spent
    usd: Decimal | None
    errands: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A sum. `keys` are what it is of; `usd` is the price of what has one, `unpriced` how many requests have none.

    `errands`, `errand_tokens` and `errand_usd` are the part of it that the CLI asked for itself.
    """

    keys: tuple[str, ...]
    requests: int
    input: int
    cached: int
    output: int
    thinking: int
    tool: int
    total: int
    usd: Decimal
    unpriced: int
    errands: int
    errand_tokens: int
    errand_usd: Decimal


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that a view needs. `unpriced` names the models that nobody knows the price of.

    `prices` is the file with prices of one's own, where there is one.
    """

    by: tuple[Key, ...]
    since: date | None
    until: date | None
    used: tuple[Used, ...]
    rows: tuple[Row, ...]
    total: Row
    sessions: int
    unpriced: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    prices: str | None = None


def report_of(
    stored: Iterable[StoredUsage],
    by: Sequence[Key],
    *,
    since: date | None = None,
    until: date | None = None,
    table: PriceTable | None = None,
) -> Report:
    """Price each request by itself, and sum up those of the days that were asked for."""
    stored = list(stored)
    taken = tuple(used(stored, since=since, until=until, table=table))
    return Report(
        by=tuple(by),
        since=since,
        until=until,
        used=taken,
        rows=tuple(grouped(taken, by)),
        total=next(iter(grouped(taken, ())), _Sum().row(())),
        sessions=len({(one.project, one.session) for one in taken}),
        unpriced=tuple(sorted({one.model for one in taken if one.usd is None})),
        troubles=tuple(trouble for one in stored for trouble in one.troubles),
    )


def used(
    stored: Iterable[StoredUsage],
    *,
    since: date | None = None,
    until: date | None = None,
    table: PriceTable | None = None,
) -> list[Used]:
    """What was used on the days from `since` to `until`, both included, by the local clock."""
    first = since.isoformat() if since else ""
    last = until.isoformat() if until else "9999-12-31" if since else "~"
    days, tiers = _Days(), _Tiers(table)
    taken = []
    for one in stored:
        tallies: dict[_Tally, list[int]] = {}
        for request in one.requests:
            here, there = days.of(request, one.started)
            if first <= here <= last:
                tokens = request.tokens
                sent = tokens.input + tokens.tool
                key = (here, there, request.model, tiers.of(request.model, sent, there))
                if (sums := tallies.get(key)) is None:
                    sums = tallies[key] = [0, 0, 0, 0, 0, 0, 0, sent]
                _add(sums, tokens)
        taken += [_priced(one, tally, sums, table) for tally, sums in tallies.items()]
    return taken


# Its day here, its day in UTC, its model, and the tier that it is in.
_Tally = tuple[str, date | None, str | None, int]


class _Tiers:
    """Which requests share their rates: within one tier, the price of a sum is the sum of the prices."""

    def __init__(self, table: PriceTable | None) -> None:
        self._table = table
        self._today = datetime.now(UTC).date()
        # Of a model on a day: from how much input to how much the same rates were found.
        self._known: dict[tuple[str | None, date | None], list[tuple[int, int, Any]]] = {}

    def of(self, model: str | None, sent: int, day: date | None) -> int:
        spans = self._known.get((model, day))
        if spans is None:
            spans = self._known[model, day] = []
        for number, (low, high, _) in enumerate(spans):
            if low <= sent <= high:
                return number
        rates = self._rates(model, sent, day)
        for number, (low, high, same) in enumerate(spans):
            # Prices that have changed with the size do not change back: between two that are the same all are.
            if same == rates:
                spans[number] = (min(low, sent), max(high, sent), same)
                return number
        spans.append((sent, sent, rates))
        return len(spans) - 1

    def _rates(self, model: str | None, sent: int, day: date | None) -> Any:
        from geminids.prices.listed import listed_rates  # late: it loads the list

        if not model:
            return None
        own = rates_in(self._table, model, sent) if self._table else None
        return own or listed_rates(model, sent, day or self._today)


def _add(sums: list[int], tokens: Spent) -> None:
    sums[0] += 1
    sums[1] += tokens.input
    sums[2] += tokens.output
    # More from the cache than was sent cannot be; it would hide in a sum.
    sums[3] += min(tokens.cached, tokens.input)
    sums[4] += tokens.thinking
    sums[5] += tokens.tool
    sums[6] += tokens.total


def _priced(one: StoredUsage, tally: _Tally, sums: list[int], table: PriceTable | None) -> Used:
    here, there, model, _ = tally
    requests, *counts, sent = sums
    tokens = Spent(*counts)
    price = price_of(model, tokens, there, table, tier_for=sent)
    return Used(
        day=here,
        model=model or UNKNOWN,
        project=one.project or UNKNOWN,
        session=one.session,
        requests=requests,
        tokens=tokens,
        usd=price.usd if price is not None else None,
        errands=one.errands,
    )


class _Days:
    """The day of a request: here, and in UTC, by which prices change. A minute is on one day everywhere."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._known: dict[str, tuple[str, date | None]] = {}

    def of(self, request: Request, otherwise: str) -> tuple[str, date | None]:
        for stamp in (request.at, otherwise):
            found = self._known.get(stamp[:16]) or self._look(stamp)
            if found is not None:
                return found
        # It sorts behind all days, and is left out where some are asked for.
        return UNKNOWN, None

    def _look(self, stamp: str) -> tuple[str, date | None] | None:
        try:
            then = datetime.fromisoformat(stamp)
            then = then if then.tzinfo else then.replace(tzinfo=UTC)
            found = then.astimezone(self._zone).date().isoformat(), then.astimezone(UTC).date()
        except (ValueError, OverflowError):
            return None
        if stamp.endswith("Z"):
            self._known[stamp[:16]] = found
        return found


class _Sum:
    __slots__ = (
        *("cached", "input", "output", "requests", "thinking", "tool", "total", "unpriced", "usd"),
        *("errand_tokens", "errand_usd", "errands"),
    )

    def __init__(self) -> None:
        self.requests = self.input = self.cached = self.output = self.thinking = self.tool = self.total = 0
        self.unpriced = self.errands = self.errand_tokens = 0
        self.usd = self.errand_usd = Decimal(0)

    def add(self, one: Used) -> None:
        tokens = one.tokens
        self.requests += one.requests
        self.input += tokens.input
        self.cached += tokens.cached
        self.output += tokens.output
        self.thinking += tokens.thinking
        self.tool += tokens.tool
        self.total += tokens.total
        if one.usd is None:
            self.unpriced += one.requests
        else:
            self.usd += one.usd
        if one.errands:
            self.errands += one.requests
            self.errand_tokens += tokens.total
            self.errand_usd += one.usd or 0

    def row(self, keys: tuple[str, ...]) -> Row:
        sums: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return Row(keys=keys, **sums)


def grouped(taken: Iterable[Used], by: Sequence[Key]) -> list[Row]:
    """A row for each that has been used, in order."""
    sums: dict[tuple[str, ...], _Sum] = {}
    for one in taken:
        keys = tuple([getattr(one, key) for key in by])
        found = sums.get(keys)
        if found is None:
            found = sums[keys] = _Sum()
        found.add(one)
    return [sums[keys].row(keys) for keys in sorted(sums)]
