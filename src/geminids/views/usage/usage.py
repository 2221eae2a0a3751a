"""Price the requests of stored sessions and sum them up by day, model, project or session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Literal

import msgspec

from geminids.sessions.usage import Kind, Spent, StoredUsage, Trouble
from geminids.spending import PriceTable, price_of
from geminids.spending.table import rates_in

__all__ = ["FOOTNOTE", "Key", "Report", "Row", "Used", "grouped", "report_of", "used"]

Key = Literal["day", "model", "project", "session"]
FOOTNOTE = (
    "Session files do not hold requests outside the conversation (model router, web search, web fetch, compression, "
    "loop checks) and discarded answers. They are counted for runs of geminids through its gateway and are missing for "
    "all other runs. Failed requests are not counted."
)
UNKNOWN = "unknown"


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What one session used of one model on one day; `usd` is None if the price is unknown.

    `are_tokens_known` is False for requests whose answers ended before they reported their tokens.
    """

    day: str
    model: str
    project: str
    session: str
    requests: int
    tokens: Spent
    usd: Decimal | None
    kind: Kind = "conversation"
    are_tokens_known: bool = True


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A sum for `keys`. `usd` is the price of the requests that have one, `unpriced` the number of the others.

    The sums include requests outside the conversation (`other_…`) and answers that the CLI threw away
    (`discarded_…`). `unknown_requests` ended before they reported their tokens.
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
    other_requests: int
    other_tokens: int
    other_usd: Decimal
    discarded_requests: int
    discarded_tokens: int
    discarded_usd: Decimal
    unknown_requests: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a view shows. `unpriced` are the models without a known price; `prices` is the user's price file."""

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
    """Price each request by itself and sum up those from `since` to `until`."""
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
    """What was used from `since` to `until`, both included, in local time."""
    first = since.isoformat() if since else ""
    last = until.isoformat() if until else "9999-12-31" if since else "~"
    days, tiers = _Days(), _Tiers(table)
    taken = []
    for one in stored:
        tallies: dict[_Tally, list[int]] = {}
        # The last request's minute, model and sums, and the input tokens that have its rates: often the next one's too.
        minute, model, low, high = "", None, 1, 0
        sums: list[int] = []
        for request in one.requests:
            tokens = request.tokens
            sent = tokens.input + tokens.tool
            if not (low <= sent <= high and request.model == model and request.at[:16] == minute):
                here, there = days.of(request.at, one.started)
                if not first <= here <= last:
                    continue
                # Only in UTC does the text of a minute name one minute.
                minute = request.at[:16] if request.at.endswith("Z") else ""
                model = request.model
                tier, low, high = tiers.of(model, sent, there)
                key = (here, there, model, tier)
                found = tallies.get(key)
                if found is None:
                    found = tallies[key] = [0, 0, 0, 0, 0, 0, 0, sent]
                sums = found
            # Not in a function: a report has many requests, and a call would take as long as the sums.
            sums[0] += 1
            sums[1] += tokens.input
            sums[2] += tokens.output
            # More cached than sent tokens is an error of the file; a sum would hide it.
            sums[3] += min(tokens.cached, tokens.input)
            sums[4] += tokens.thinking
            sums[5] += tokens.tool
            sums[6] += tokens.recorded_total or tokens.total
        taken += [_priced(one, tally, sums, table) for tally, sums in tallies.items()]
    return taken


# The local day, the day in UTC, the model, and the price tier of a request.
_Tally = tuple[str, date | None, str | None, int]


class _Tiers:
    """Find requests with the same rates: within a tier, the price of a sum is the sum of the prices."""

    def __init__(self, table: PriceTable | None) -> None:
        self._table = table
        self._today = datetime.now(UTC).date()
        # For a model on a day: from how many to how many input tokens the same rates were found.
        self._known: dict[tuple[str | None, date | None], list[tuple[int, int, Any]]] = {}

    def of(self, model: str | None, sent: int, day: date | None) -> tuple[int, int, int]:
        """The number of the tier, and from how many to how many input tokens it is known to reach."""
        spans = self._known.get((model, day))
        if spans is None:
            spans = self._known[model, day] = []
        for number, (low, high, _) in enumerate(spans):
            if low <= sent <= high:
                return number, low, high
        rates = self._rates(model, sent, day)
        for number, (low, high, same) in enumerate(spans):
            # A price that changes with the size does not change back: between two equal ones all are equal.
            if same == rates:
                low, high = min(low, sent), max(high, sent)
                spans[number] = (low, high, same)
                return number, low, high
        spans.append((sent, sent, rates))
        return len(spans) - 1, sent, sent

    def _rates(self, model: str | None, sent: int, day: date | None) -> Any:
        from geminids.spending.list_prices import listed_rates  # late: it loads the list

        if not model:
            return None
        own = rates_in(self._table, model, sent) if self._table else None
        return own or listed_rates(model, sent, day or self._today)


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
        kind=one.kind,
        are_tokens_known=one.are_tokens_known,
    )


class _Days:
    """The local day of a request, and its day in UTC, by which prices change. A minute is never on two days."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._known: dict[str, tuple[str, date | None]] = {}

    def of(self, at: str, otherwise: str) -> tuple[str, date | None]:
        found = self._known.get(at[:16]) or self._look(at) or self._look(otherwise)
        if found is not None:
            return found
        # Sorts after all days, and is not between any two days.
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
        *("other_requests", "other_tokens", "other_usd", "unknown_requests"),
        *("discarded_requests", "discarded_tokens", "discarded_usd"),
    )

    def __init__(self) -> None:
        self.requests = self.input = self.cached = self.output = self.thinking = self.tool = self.total = 0
        self.unpriced = self.unknown_requests = 0
        self.other_requests = self.other_tokens = self.discarded_requests = self.discarded_tokens = 0
        self.usd = self.other_usd = self.discarded_usd = Decimal(0)

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
        if not one.are_tokens_known:
            self.unknown_requests += one.requests
        if one.kind == "other":
            self.other_requests += one.requests
            self.other_tokens += tokens.total
            self.other_usd += one.usd or 0
        elif one.kind == "discarded":
            self.discarded_requests += one.requests
            self.discarded_tokens += tokens.total
            self.discarded_usd += one.usd or 0

    def row(self, keys: tuple[str, ...]) -> Row:
        sums: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return Row(keys=keys, **sums)


def grouped(taken: Iterable[Used], by: Sequence[Key]) -> list[Row]:
    """One row for each value of the keys, in order."""
    sums: dict[tuple[str, ...], _Sum] = {}
    for one in taken:
        keys = tuple([getattr(one, key) for key in by])
        found = sums.get(keys)
        if found is None:
            found = sums[keys] = _Sum()
        found.add(one)
    return [sums[keys].row(keys) for keys in sorted(sums)]
