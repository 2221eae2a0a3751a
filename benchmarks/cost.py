"""What it takes to price a request, beside the library by itself; and that a long run's cost is linear."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.table import Row, Side, say

__all__ = ["run"]

_MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-3.1-pro-preview")
_NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)


def run(work: Path, *, quick: bool) -> list[Row]:
    few, many = (1_000, 20_000) if quick else (10_000, 1_000_000)
    rounds = 3 if quick else 5
    ours: list[float] = []
    theirs: list[float] = []
    long: list[float] = []
    _of_a_run(100)  # what is loaded once is no request's cost
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        ours.append(_of_a_run(few))
        theirs.append(_by_the_library(few))
        if number < 3:
            long.append(_of_a_run(many))
    short = Side(f"a run of {few:,} requests", "ns a request", tuple(ours))
    library = Side("genai-prices itself", "ns a request", tuple(theirs))
    large = Side(f"a run of {many:,} requests", "ns a request", tuple(long))
    took, ratio = short.median / 1000, large.median / short.median
    beside = f"{short.median / library.median:.2f} x the time of genai-prices"
    return [
        Row(
            name="the price of a request, µs",
            sides=(short, library),
            figure=took,
            shown=f"{took:.1f} µs",
            bound=100,
            note=beside,
        ),
        Row(
            name="a request of a long run beside one of a short run",
            sides=(short, large),
            figure=ratio,
            shown=f"{ratio:.2f} x",
            bound=1.5,
        ),
    ]


def _of_a_run(count: int) -> float:
    """Nanoseconds for each request of a run that is over: its tokens are known, its cost is asked for."""
    from geminids import Options
    from geminids.events.model import TokensUsed
    from geminids.run.accounting.cost import Prices

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


def _by_the_library(count: int) -> float:
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
