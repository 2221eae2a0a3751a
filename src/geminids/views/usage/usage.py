"""Compute the usage report: costs and tokens by day, model, project or session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Literal

import msgspec

from geminids.sessions.usage import Kind, RequestTokens, StoredUsage, Trouble
from geminids.spending import PriceTable, price_of
from geminids.spending.list_prices import listed_rates
from geminids.spending.table import rates_in

__all__ = ["FOOTNOTE", "Key", "Report", "UsageEntry", "UsageRow", "build_report", "group_usage", "used"]

Key = Literal["day", "model", "project", "session"]
FOOTNOTE = (
    "Session files do not contain requests outside the conversation (model router, web search, web fetch, compression, "
    "loop checks) and discarded answers. They are counted for runs of geminids through its gateway; for all other "
    "runs, they are missing. Failed requests are not counted."
)
UNKNOWN = "unknown"


class UsageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one session to one model on one day, with their tokens and their cost.

    `usd` is None if the price is unknown. `are_tokens_known` is False if the answers to these
    requests ended before the API reported the tokens. `is_free` is True if a script or a cassette
    answered.
    """

    day: str
    model: str
    project: str
    session: str
    requests: int
    tokens: RequestTokens
    usd: Decimal | None
    kind: Kind = "conversation"
    are_tokens_known: bool = True
    is_free: bool = False


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report: sums over all requests with these `keys`, such as a day and a model.

    `usd` is the cost of the requests whose price is known; `unpriced` is the number of requests
    whose price is unknown. `unknown_requests` is the number of requests whose tokens are unknown.

    The fields `other_…` are sums over only the requests outside the conversation. The fields
    `discarded_…` are sums over only the requests whose answers the CLI did not use. The fields
    `scripted_…` are sums over only the requests that a script or a cassette answered, which cost
    nothing. All other sums include these requests too.
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
    scripted_requests: int
    scripted_tokens: int
    unknown_requests: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A usage report, which can be shown as a table, an HTML page, JSON or CSV.

    `by` lists the keys by which the rows are grouped. `used` are the entries from which the rows
    are computed. `unpriced` are the models whose price is unknown. `prices` is the path of the
    user's price file, if there is one.
    """

    by: tuple[Key, ...]
    since: date | None
    until: date | None
    used: tuple[UsageEntry, ...]
    rows: tuple[UsageRow, ...]
    total: UsageRow
    sessions: int
    unpriced: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    prices: str | None = None


def build_report(
    stored: Iterable[StoredUsage],
    by: Sequence[Key],
    *,
    since: date | None = None,
    until: date | None = None,
    table: PriceTable | None = None,
) -> Report:
    """Compute the usage report over all requests from the day `since` to the day `until`.

    The report has one row for each combination of values of the keys `by`. `table` contains the
    user's own prices.
    """
    stored = list(stored)
    entries = tuple(used(stored, since=since, until=until, table=table))
    return Report(
        by=tuple(by),
        since=since,
        until=until,
        used=entries,
        rows=tuple(group_usage(entries, by)),
        total=next(iter(group_usage(entries, ())), _UsageSum().row(())),
        sessions=len({(entry.project, entry.session) for entry in entries}),
        unpriced=tuple(sorted({entry.model for entry in entries if entry.usd is None})),
        troubles=tuple(trouble for session in stored for trouble in session.troubles),
    )


def used(
    stored: Iterable[StoredUsage],
    *,
    since: date | None = None,
    until: date | None = None,
    table: PriceTable | None = None,
) -> list[UsageEntry]:
    """Return the usage entries from the day `since` to the day `until`, both included, in local
    time.

    `table` contains the user's own prices.
    """
    first = since.isoformat() if since else ""
    last = until.isoformat() if until else "9999-12-31" if since else "~"
    days, tiers = _DayLookup(), _PriceTiers(table)
    entries = []
    for session in stored:
        tallies: dict[_Tally, list[int]] = {}
        # The minute, the model, the range of tokens and the sums of the last request. The next
        # request often has the same ones, so they need not be searched again.
        minute, model, low, high = "", None, 1, 0
        sums: list[int] = []
        for request in session.requests:
            tokens = request.tokens
            sent = tokens.input + tokens.tool
            if not (low <= sent <= high and request.model == model and request.at[:16] == minute):
                day, utc_day = days.of(request.at, session.started)
                if not first <= day <= last:
                    continue
                # Remember the minute only if the time is in UTC: with another time zone, the same
                # text can stand for two different minutes.
                minute = request.at[:16] if request.at.endswith("Z") else ""
                model = request.model
                tier, low, high = tiers.of(model, sent, utc_day)
                key = (day, utc_day, model, tier)
                known = tallies.get(key)
                if known is None:
                    known = tallies[key] = [0, 0, 0, 0, 0, 0, 0, sent]
                sums = known
            # These sums are not in a function, because a report has many requests and the calls
            # would double the time.
            sums[0] += 1
            sums[1] += tokens.input
            sums[2] += tokens.output
            # If a request has more cached than input tokens, its file has an error. Correct the
            # error here, because it would not be visible in the sum.
            sums[3] += min(tokens.cached, tokens.input)
            sums[4] += tokens.thinking
            sums[5] += tokens.tool
            sums[6] += tokens.recorded_total or tokens.total
        entries += [_price_tally(session, tally, sums, table) for tally, sums in tallies.items()]
    return entries


# The key of requests that are summed up: local day, day in UTC, model, and number of the price tier
# (a range of request sizes with the same prices).
_Tally = tuple[str, date | None, str | None, int]


class _PriceTiers:
    """Finds the price tier of a request. A price tier is a range of request sizes with the same
    price per token.

    The tokens of all requests of a tier can be added up before the price is computed.
    """

    def __init__(self, table: PriceTable | None) -> None:
        self._table = table
        self._today = datetime.now(UTC).date()
        # The known tiers by model and day: the smallest and the largest number of input tokens that
        # were seen, and the rates.
        self._known: dict[tuple[str | None, date | None], list[tuple[int, int, Any]]] = {}

    def of(self, model: str | None, sent: int, day: date | None) -> tuple[int, int, int]:
        """Return three numbers: the index of the price tier for a request with `sent` input tokens,
        and the smallest and the largest number of input tokens that are known to have this tier."""
        spans = self._known.get((model, day))
        if spans is None:
            spans = self._known[model, day] = []
        for number, (low, high, _) in enumerate(spans):
            if low <= sent <= high:
                return number, low, high
        rates = self._rates(model, sent, day)
        for number, (low, high, span_rates) in enumerate(spans):
            # Rates that change with the size do not change back. So if the rates are equal for two
            # sizes, they are equal for all sizes between them.
            if span_rates == rates:
                low, high = min(low, sent), max(high, sent)
                spans[number] = (low, high, span_rates)
                return number, low, high
        spans.append((sent, sent, rates))
        return len(spans) - 1, sent, sent

    def _rates(self, model: str | None, sent: int, day: date | None) -> Any:
        if not model:
            return None
        rates = rates_in(self._table, model, sent) if self._table else None
        return rates or listed_rates(model, sent, day or self._today)


def _price_tally(
    session: StoredUsage, tally: _Tally, sums: list[int], table: PriceTable | None
) -> UsageEntry:
    day, utc_day, model, _ = tally
    requests, *counts, sent = sums
    tokens = RequestTokens(*counts)
    price = None if session.is_free else price_of(model, tokens, utc_day, table, tier_for=sent)
    return UsageEntry(
        day=day,
        model=model or UNKNOWN,
        project=session.project or UNKNOWN,
        session=session.session,
        requests=requests,
        tokens=tokens,
        usd=Decimal(0) if session.is_free else price.usd if price is not None else None,
        kind=session.kind,
        are_tokens_known=session.are_tokens_known,
        is_free=session.is_free,
    )


class _DayLookup:
    """Finds the day of a request in local time, and its day in UTC.

    The price of a request depends on the day in UTC. The results are cached by minute.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._known: dict[str, tuple[str, date | None]] = {}

    def of(self, at: str, fallback: str) -> tuple[str, date | None]:
        days = self._known.get(at[:16]) or self._parse(at) or self._parse(fallback)
        if days is not None:
            return days
        # As text, "unknown" is greater than all days, so `since` and `until` exclude it.
        return UNKNOWN, None

    def _parse(self, stamp: str) -> tuple[str, date | None] | None:
        try:
            time = datetime.fromisoformat(stamp)
            time = time if time.tzinfo else time.replace(tzinfo=UTC)
            days = time.astimezone(self._zone).date().isoformat(), time.astimezone(UTC).date()
        except (ValueError, OverflowError):
            return None
        if stamp.endswith("Z"):
            self._known[stamp[:16]] = days
        return days


class _UsageSum:
    __slots__ = (
        *("cached", "input", "output", "requests", "thinking", "tool", "total", "unpriced", "usd"),
        *("other_requests", "other_tokens", "other_usd", "unknown_requests"),
        *("discarded_requests", "discarded_tokens", "discarded_usd"),
        *("scripted_requests", "scripted_tokens"),
    )

    def __init__(self) -> None:
        self.requests = self.input = self.cached = self.output = self.thinking = self.tool = self.total = 0
        self.unpriced = self.unknown_requests = 0
        self.other_requests = self.other_tokens = self.discarded_requests = self.discarded_tokens = 0
        self.scripted_requests = self.scripted_tokens = 0
        self.usd = self.other_usd = self.discarded_usd = Decimal(0)

    def add(self, used: UsageEntry) -> None:
        tokens = used.tokens
        self.requests += used.requests
        self.input += tokens.input
        self.cached += tokens.cached
        self.output += tokens.output
        self.thinking += tokens.thinking
        self.tool += tokens.tool
        self.total += tokens.total
        if used.usd is None:
            self.unpriced += used.requests
        else:
            self.usd += used.usd
        if not used.are_tokens_known:
            self.unknown_requests += used.requests
        if used.is_free:
            self.scripted_requests += used.requests
            self.scripted_tokens += tokens.total
        if used.kind == "other":
            self.other_requests += used.requests
            self.other_tokens += tokens.total
            self.other_usd += used.usd or 0
        elif used.kind == "discarded":
            self.discarded_requests += used.requests
            self.discarded_tokens += tokens.total
            self.discarded_usd += used.usd or 0

    def row(self, keys: tuple[str, ...]) -> UsageRow:
        sums: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return UsageRow(keys=keys, **sums)


def group_usage(entries: Iterable[UsageEntry], by: Sequence[Key]) -> list[UsageRow]:
    """Add up the entries: return one row for each combination of values of the keys `by`. The rows
    are sorted by these values."""
    sums: dict[tuple[str, ...], _UsageSum] = {}
    for entry in entries:
        keys = tuple([getattr(entry, key) for key in by])
        total = sums.get(keys)
        if total is None:
            total = sums[keys] = _UsageSum()
        total.add(entry)
    return [sums[keys].row(keys) for keys in sorted(sums)]
