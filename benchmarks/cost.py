"""Measure the time to price a request: compared with the library alone, and in long and short runs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.table import Row, Side, log
from geminids import Options
from geminids.events.model import TokensUsed
from geminids.run.accounting.cost import Prices

__all__ = ["run"]

_MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-3.1-pro-preview")
_NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)


def run(work: Path, *, quick: bool) -> list[Row]:
    few, many = (1_000, 20_000) if quick else (10_000, 1_000_000)
    rounds = 3 if quick else 5
    ours: list[float] = []
    theirs: list[float] = []
    long: list[float] = []
    _price_run(100)  # not counted: it loads the prices
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        ours.append(_price_run(few))
        theirs.append(_price_with_library(few))
        if number < 3:
            long.append(_price_run(many))
    short = Side(f"a run of {few:,} requests", "ns per request", tuple(ours))
    library = Side("genai-prices alone", "ns per request", tuple(theirs))
    large = Side(f"a run of {many:,} requests", "ns per request", tuple(long))
    took, ratio = short.median / 1000, large.median / short.median
    comparison = f"{short.median / library.median:.2f} x the time of genai-prices"
    return [
        Row(
            name="pricing a request, µs",
            sides=(short, library),
            figure=took,
            shown=f"{took:.1f} µs",
            bound=100,
            note=comparison,
        ),
        Row(
            name="a request of a long run vs. one of a short run",
            sides=(short, large),
            figure=ratio,
            shown=f"{ratio:.2f} x",
            bound=1.5,
        ),
    ]


def _price_run(count: int) -> float:
    """Return the nanoseconds per request to price a finished run, whose tokens are known."""
    requests = [
        TokensUsed(
            at=_NOON,
            seq=number,
            attempt=1,
            turn=1,
            model=_MODELS[number % len(_MODELS)],
            role="main",
            input=1_000 + number % 250_000,
            cached=number % 1_000,
            output=number % 500,
            thinking=number % 50,
            tool=0,
        )
        for number in range(count)
    ]
    prices = Prices(Options(), "key", metered=True)
    prices.load()
    began = time.perf_counter_ns()
    cost = prices.total(requests, None)
    took = (time.perf_counter_ns() - began) / count
    if cost.basis != "exact" or not cost.usd:
        raise SystemExit(f"the measurement failed: {cost}")
    return took


def _price_with_library(count: int) -> float:
    from genai_prices import Usage, calc_price

    at = datetime(2026, 11, 16, 12, tzinfo=UTC)
    began = time.perf_counter_ns()
    for number in range(count):
        used = Usage(
            input_tokens=1_000 + number, cache_read_tokens=number % 1_000, output_tokens=number % 550
        )
        model = _MODELS[number % len(_MODELS)]
        calc_price(used, model, provider_id="google", genai_request_timestamp=at)
    return (time.perf_counter_ns() - began) / count
