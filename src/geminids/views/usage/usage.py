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
    """The usage of one model by one session on one day; `usd` is None if the price is unknown.

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
    """A sum for `keys`.

    `usd` is the price of the requests that have one, `unpriced` the number of the others.

    The sums include requests outside the conversation (`other_…`) and answers that the CLI
    discarded (`discarded_…`). `unknown_requests` ended before they reported their tokens.
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
    """The data of all views.

    `unpriced` are the models without a known price; `prices` is the user's price file.
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
        sessions=len({(entry.project, entry.session) for entry in taken}),
        unpriced=tuple(sorted({entry.model for entry in taken if entry.usd is None})),
        troubles=tuple(trouble for session in stored for trouble in session.troubles),
    )


def used(
    stored: Iterable[StoredUsage],
    *,
    since: date | None = None,
    until: date | None = None,
    table: PriceTable | None = None,
) -> list[Used]:
    """The usage from `since` to `until`, both included, in local time."""
    first = since.isoformat() if since else ""
    last = until.isoformat() if until else "9999-12-31" if since else "~"
    days, tiers = _Days(), _Tiers(table)
    taken = []
    for session in stored:
        tallies: dict[_Tally, list[int]] = {}
        # Minute, model, sums and token range of the last request: they often fit the next request
        # too.
        minute, model, low, high = "", None, 1, 0
        sums: list[int] = []
        for request in session.requests:
            tokens = request.tokens
            sent = tokens.input + tokens.tool
            if not (low <= sent <= high and request.model == model and request.at[:16] == minute):
                day, utc_day = days.of(request.at, session.started)
                if not first <= day <= last:
                    continue
                # Only in UTC is the text of a minute unambiguous.
                minute = request.at[:16] if request.at.endswith("Z") else ""
                model = request.model
                tier, low, high = tiers.of(model, sent, utc_day)
                key = (day, utc_day, model, tier)
                known = tallies.get(key)
                if known is None:
                    known = tallies[key] = [0, 0, 0, 0, 0, 0, 0, sent]
                sums = known
            # Inline: a report has many requests, and a function call would take as long as the
            # sums.
            sums[0] += 1
            sums[1] += tokens.input
            sums[2] += tokens.output
            # More cached than input tokens is an error in the file; a sum would hide it.
            sums[3] += min(tokens.cached, tokens.input)
            sums[4] += tokens.thinking
            sums[5] += tokens.tool
            sums[6] += tokens.recorded_total or tokens.total
        taken += [_priced(session, tally, sums, table) for tally, sums in tallies.items()]
    return taken


# The local day, the day in UTC, the model, and the price tier of a request.
_Tally = tuple[str, date | None, str | None, int]


class _Tiers:
    """Groups requests with the same rates.

    Within a tier, the price of a sum is the sum of the prices.
    """

    def __init__(self, table: PriceTable | None) -> None:
        self._table = table
        self._today = datetime.now(UTC).date()
        # For a model on a day: ranges of input tokens with the same rates.
        self._known: dict[tuple[str | None, date | None], list[tuple[int, int, Any]]] = {}

    def of(self, model: str | None, sent: int, day: date | None) -> tuple[int, int, int]:
        """The number of the tier, and its known range of input tokens."""
        spans = self._known.get((model, day))
        if spans is None:
            spans = self._known[model, day] = []
        for number, (low, high, _) in enumerate(spans):
            if low <= sent <= high:
                return number, low, high
        rates = self._rates(model, sent, day)
        for number, (low, high, same) in enumerate(spans):
            # A price that changes with the size does not change back: between two equal rates all
            # rates are equal.
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
        rates = rates_in(self._table, model, sent) if self._table else None
        return rates or listed_rates(model, sent, day or self._today)


def _priced(session: StoredUsage, tally: _Tally, sums: list[int], table: PriceTable | None) -> Used:
    day, utc_day, model, _ = tally
    requests, *counts, sent = sums
    tokens = Spent(*counts)
    price = price_of(model, tokens, utc_day, table, tier_for=sent)
    return Used(
        day=day,
        model=model or UNKNOWN,
        project=session.project or UNKNOWN,
        session=session.session,
        requests=requests,
        tokens=tokens,
        usd=price.usd if price is not None else None,
        kind=session.kind,
        are_tokens_known=session.are_tokens_known,
    )


class _Days:
    """The local day of a request, and its UTC day, which prices depend on. Cached by minute."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._known: dict[str, tuple[str, date | None]] = {}

    def of(self, at: str, fallback: str) -> tuple[str, date | None]:
        days = self._known.get(at[:16]) or self._parse(at) or self._parse(fallback)
        if days is not None:
            return days
        # Sorts after all days, and is not between any two days.
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

    def add(self, used: Used) -> None:
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
        if used.kind == "other":
            self.other_requests += used.requests
            self.other_tokens += tokens.total
            self.other_usd += used.usd or 0
        elif used.kind == "discarded":
            self.discarded_requests += used.requests
            self.discarded_tokens += tokens.total
            self.discarded_usd += used.usd or 0

    def row(self, keys: tuple[str, ...]) -> Row:
        sums: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return Row(keys=keys, **sums)


def grouped(taken: Iterable[Used], by: Sequence[Key]) -> list[Row]:
    """One row for each combination of key values, sorted."""
    sums: dict[tuple[str, ...], _Sum] = {}
    for entry in taken:
        keys = tuple([getattr(entry, key) for key in by])
        total = sums.get(keys)
        if total is None:
            total = sums[keys] = _Sum()
        total.add(entry)
    return [sums[keys].row(keys) for keys in sorted(sums)]
