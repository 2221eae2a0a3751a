"""What a run costs, by hand: each case to the hundredth of a cent and beyond."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids import Options, TokensUsed
from geminids.events.cost import Cost
from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import (
    Event,
    Finished,
    ModelUsage,
    Started,
    Text,
    Usage,
    decode_event,
    encode_event,
)
from geminids.prices import price_of
from geminids.run import cost as module
from geminids.run.cost import Bill, bill_of, cost_of
from geminids.run.usage import by_request, overseen, remainder, usage_of
from geminids.wire.stream_json import ModelStats, Stats

NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
PRO, FLASH, LITE = "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"
# Dollars per million tokens: pro 1.25 (cache 0.125), output 10; above 200,000: 2.50 (0.25), 15.
# flash 0.30 (0.03), output 2.50; flash-lite 0.10 (0.01), output 0.40.


def request(model: str | None = PRO, role: Any = "main", **counts: int | None) -> TokensUsed:
    known: dict[str, int | None] = {"input": 0, "cached": 0, "output": 0, "thinking": 0, "tool": 0}
    return TokensUsed(at=NOON, seq=0, attempt=1, turn=1, model=model, role=role, **{**known, **counts})


def started(attempt: int = 1) -> Started:
    return Started(
        at=NOON,
        seq=0,
        attempt=attempt,
        turn=1,
        run_id="run-1",
        session_id=None,
        model=None,
        cwd="/repo",
        cli_version="0.61.0",
        lane="headless",
        pid=1,
        approval="default",
        prompt="hello",
    )


def cost(
    *events: Event, usage: Usage | None = None, outcome: Any = "success", uncounted: int = 0, **bill: Any
) -> Cost:
    """Of a run with these events; without `usage`, of one whose each request the gateway has seen."""
    fold, ledger = Fold(), Ledger()
    fold.add([started(), *events])
    ledger.uncounted = uncounted
    seen = usage is None and "overseen" not in bill
    known = overseen(fold.tokens) if seen else usage
    whose = Bill(**{"auth_mode": "key", "overseen": seen, **bill})
    return cost_of(fold, ledger, known, whose, outcome)


def journal(*requests: TokensUsed) -> Usage:
    """The usage of a run whose journal agrees with the CLI's sums."""
    usage = by_request(usage_of(sums(*requests)), requests, each=True)
    assert usage is not None
    return usage


def sums(*requests: TokensUsed, models: bool = True) -> Stats:
    def summed(some: list[TokensUsed]) -> dict[str, int]:
        whole = {name: sum(getattr(one, name) or 0 for one in some) for name in ("input", "cached", "output")}
        rest = sum((one.thinking or 0) + (one.tool or 0) for one in some)
        return {
            "input_tokens": whole["input"],
            "output_tokens": whole["output"],
            "cached": whole["cached"],
            "total_tokens": whole["input"] + whole["output"] + rest,
        }

    names = {one.model or "" for one in requests} if models else set()
    by_model = {name: ModelStats(**summed([one for one in requests if one.model == name])) for name in names}
    return Stats(**summed(list(requests)), models=by_model)


def told(one: Cost) -> tuple[Decimal | None, str]:
    return one.usd, one.basis


# The twelve.


def test_cache() -> None:
    """Cached tokens are part of input, at a price of their own: 2,000 × 1.25 + 8,000 × 0.125 + 100 × 10."""
    assert told(cost(request(input=10_000, cached=8_000, output=100))) == (Decimal("0.0045"), "exact")


def test_thinking() -> None:
    """Thinking is billed as output: 1,000 × 1.25 + (100 + 400) × 10."""
    assert told(cost(request(input=1_000, output=100, thinking=400))) == (Decimal("0.00625"), "exact")


def test_the_tier_is_each_requests_own() -> None:
    """Two of 150,000 are two below the tier (0.375 + 0.01), one of 300,000 is above it (0.75 + 0.015)."""
    small = request(input=150_000, output=500)
    assert told(cost(small, small)) == (Decimal("0.385"), "exact")
    assert told(cost(request(input=300_000, output=1_000))) == (Decimal("0.765"), "exact")


def test_two_models_in_one_run() -> None:
    """Each by its own price, and its share told: 0.00125 + 0.001 and 0.0003 + 0.00025."""
    found = cost(request(input=1_000, output=100), request(FLASH, input=1_000, output=100))
    assert told(found) == (Decimal("0.0028"), "exact")
    assert {one.model: one.usd for one in found.models} == {
        PRO: Decimal("0.00225"),
        FLASH: Decimal("0.00055"),
    }


def test_the_router_is_paid_for_too() -> None:
    """Seen by the gateway it is exact; as what the sums have over the journal it is an estimate of the same amount."""
    main = request(input=1_000, output=100)
    router = request(LITE, "utility", input=2_000, output=50)  # 0.0002 + 0.00002
    assert told(cost(router, main)) == (Decimal("0.00247"), "exact")
    usage = usage_of(sums(router, main))
    rest = remainder(usage, [main], Ledger())
    known = by_request(usage, [main, *rest], each=False)
    assert told(cost(main, *rest, usage=known)) == (Decimal("0.00247"), "estimate")


def test_a_subagent_is_paid_for_too() -> None:
    """Its requests are in the journal of its own: 0.00225 + 0.0003 + 0.000125."""
    both = request(input=1_000, output=100), request(FLASH, "subagent", input=1_000, output=50)
    assert told(cost(*both, usage=journal(*both))) == (Decimal("0.002675"), "exact")


def test_a_resumed_session_costs_its_own_requests() -> None:
    """What was said before is input again, most of it from the cache, and nothing of it is counted twice."""
    again = request(input=20_000, cached=19_000, output=100)  # 0.00125 + 0.002375 + 0.001
    assert told(cost(again, usage=journal(again))) == (Decimal("0.004625"), "exact")


def test_an_aborted_run_costs_what_it_has_asked_for() -> None:
    """What is known, as an estimate: the answer that was cut has cost something too, and nobody says what."""
    one = request(input=1_000, output=100)
    assert told(cost(one, usage=None, overseen=False, outcome="interrupted")) == (
        Decimal("0.00225"),
        "estimate",
    )
    assert told(cost(one, outcome="interrupted", uncounted=1)) == (Decimal("0.00225"), "estimate")
    assert told(cost(one, outcome="interrupted")) == (Decimal("0.00225"), "exact"), "between two requests"
    assert told(cost(uncounted=1)) == (None, "unknown")


def test_all_attempts_count() -> None:
    """The money of a run that was tried again is that of both; exact where each request of both is known."""
    first, second = request(input=1_000, output=100), request(input=2_000, output=100)
    second = msgspec.structs.replace(second, attempt=2)
    assert told(cost(first, started(2), second)) == (Decimal("0.00575"), "exact")
    both = journal(first, second)
    assert told(cost(first, started(2), second, usage=both)) == (Decimal("0.00575"), "exact")
    cut = cost(first, started(2), second, usage=journal(second))
    assert told(cut) == (Decimal("0.00575"), "estimate"), "the first one has told no sums: it was cut"
    silent = cost(started(2), second, usage=journal(second))
    assert told(silent) == (Decimal("0.0035"), "estimate"), "what the first one has asked for is not known"
    sums_alone = cost(started(2), usage=usage_of(sums(first, second)))
    assert told(sums_alone) == (Decimal("0.00575"), "estimate")


def test_a_model_without_a_price() -> None:
    """A sum without it would be no sum: nothing is told but the name, and what the others cost."""
    found = cost(request(input=1_000), request("gemini-99-ultra", input=1_000))
    assert (*told(found), found.list_price) == (None, "unknown", None)
    assert found.unpriced == ("gemini-99-ultra",)
    assert {one.model: one.usd for one in found.models} == {PRO: Decimal("0.00125"), "gemini-99-ultra": None}


def test_prices_of_the_callers_own(tmp_path: Path) -> None:
    """They go before the list, which is told beside them: 1,000 × 1 + 100 × 2, and 0.00125 + 0.001."""
    table = tmp_path / "prices.toml"
    table.write_text('[[models]]\nmodel = "gemini-2.5-*"\ninput = 1\noutput = 2.0\n')
    found = cost(request(input=1_000, output=100), prices=str(table))
    assert (*told(found), found.list_price) == (Decimal("0.0012"), "exact", Decimal("0.00225"))
    own = cost(request(input=1_000), prices=str(table), auth_mode="vertex")
    assert own.usd == Decimal("0.001"), "whoever gives a price says what is paid"


@pytest.mark.parametrize("cached", [None, 400])
def test_an_old_release_without_models(cached: int | None) -> None:
    """Sums alone, of the model that was asked for (0.24 with `cached`, 0.11 without): what is over is thinking."""
    stats = Stats(input_tokens=1_000, output_tokens=100, cached=cached, total_tokens=1_150)
    found = cost(usage=usage_of(stats), model=PRO)
    # 0.00125 without the cache, 0.00075 + 0.00005 with it; 150 × 10.
    assert told(found) == (Decimal("0.00275") if cached is None else Decimal("0.0023"), "estimate")
    assert told(cost(usage=usage_of(stats), model="auto")) == (None, "unknown")


# What is not known.


def test_without_the_gateway_two_must_count_the_same() -> None:
    """The journal alone proves nothing (warm), nor does it where a request may have been answered unseen."""
    one = request(input=1_000, output=100)
    assert told(cost(one, usage=journal(one))) == (Decimal("0.00225"), "exact")
    assert told(cost(one, usage=journal(one), summed=False)) == (Decimal("0.00225"), "estimate")
    assert told(cost(one, usage=journal(one), uncounted=1)) == (Decimal("0.00225"), "estimate")
    cut = cost(one, usage=journal(one), outcome="interrupted")
    assert told(cut) == (Decimal("0.00225"), "estimate")
    assert told(cost(one, summed=False)) == (Decimal("0.00225"), "exact"), "the gateway has seen it"


def test_words_that_no_journal_has() -> None:
    """The CLI has told the beginning of an answer that was cut, and has asked for it anew: that may have cost more."""
    one = request(input=1_000, output=100)
    for said, basis in ((" fi\nne ", "exact"), ("a bit of fine", "estimate")):
        fold, ledger = Fold(), Ledger()
        fold.add([started(), Text(at=NOON, seq=1, attempt=1, turn=1, text=said), one])
        ledger.written = len("fine")
        found = cost_of(fold, ledger, journal(one), Bill(auth_mode="key"), "success")
        assert told(found) == (Decimal("0.00225"), basis)


@pytest.mark.parametrize("models", [True, False])
def test_the_thinking_of_an_errand(models: bool) -> None:
    """The sums tell no thinking: what the total has over all that is known is the errand's, and paid as output."""
    main = request(input=1_000, output=100, thinking=40)  # 0.00125 + 0.0014
    errand = request(PRO, "utility", input=2_000, output=50, thinking=10)  # 0.0025 + 0.0006
    usage = usage_of(sums(main, errand, models=models))
    rest = remainder(usage, [main], Ledger())
    assert [one.thinking for one in rest] == [None]
    known = by_request(usage, [main, *rest], each=False)
    assert told(cost(main, *rest, usage=known)) == (Decimal("0.00575"), "estimate")


def test_a_time_that_nobody_knows_is_now() -> None:
    """A journal's line without a time is priced by today's list, not by that of 1970."""
    for at in (0, int(time.time() * 1000)):
        old = msgspec.structs.replace(request("gemini-3.8-flash", input=10**6), at=at)
        day = datetime.now(UTC).date()
        today = price_of("gemini-3.8-flash", old, day)
        assert today is not None and cost(old).usd == today.usd


# Laws.

COUNTS = st.builds(
    lambda model, given, part, output, thinking, tool: request(
        model, input=given, cached=int(given * part), output=output, thinking=thinking, tool=tool
    ),
    st.sampled_from([PRO, FLASH, LITE]),
    st.integers(0, 450_000),
    st.floats(0, 1),
    *([st.integers(0, 70_000)] * 3),
)


@given(st.lists(COUNTS, max_size=8), st.randoms())
def test_sums_and_order(requests: list[TokensUsed], random: Any) -> None:
    """The models' costs add up to the cost, in whatever order requests come, and in however many attempts."""
    found = cost(*requests)
    assert sum((one.usd or Decimal(0) for one in found.models), Decimal(0)) == found.usd
    assert found.usd == sum((cost(one).usd or Decimal(0) for one in requests), Decimal(0))
    mixed = random.sample(requests, len(requests))
    assert cost(*mixed).usd == found.usd
    cut = random.randint(0, len(requests))
    assert cost(*requests[:cut], started(2), *requests[cut:]).usd == found.usd


@given(COUNTS, st.sampled_from(["input", "output", "thinking", "tool"]), st.integers(1, 300_000))
def test_more_tokens_cost_no_less(one: TokensUsed, name: str, more: int) -> None:
    """Over the border of a tier too; and what comes from the cache costs no more than what does not."""
    usd = cost(one).usd
    assert usd is not None and usd >= 0
    larger = msgspec.structs.replace(one, **{name: getattr(one, name) + more})
    assert (cost(larger).usd or 0) >= usd
    assert (cost(msgspec.structs.replace(one, cached=0)).usd or 0) >= usd


@pytest.mark.parametrize("mode", ["account", "vertex", "adc", "other"])
def test_other_sign_ins_have_a_bill_of_their_own(mode: str) -> None:
    """What it would cost by list price is told, and what is billed is not known."""
    found = cost(request(input=1_000), auth_mode=mode)
    assert (found.usd, found.list_price, found.basis, found.auth_mode) == (
        None,
        Decimal("0.00125"),
        "exact",
        mode,
    )


def test_nothing_asked_costs_nothing_where_somebody_has_seen_it() -> None:
    """The gateway knows that no request left; without it nobody does, and zeros of the CLI are no proof."""
    assert told(cost()) == (Decimal(0), "exact")
    assert told(cost(overseen=False)) == (None, "unknown")
    assert told(cost(usage=Usage(input=0, output=0, total=0))) == (None, "unknown")


def test_no_real_model_costs_nothing() -> None:
    """Offline and replayed runs: nobody pays, and a scripted model has no price."""
    for options in (Options(offline=True), Options(replay="/repo/a.jsonl")):
        bill = bill_of(options, "key", model=None, overseen=True)
        found = cost(request(input=1_000), **msgspec.structs.asdict(bill))
        assert found == Cost(usd=Decimal(0), basis="exact", auth_mode="none")


def test_sums_above_a_tier_are_taken_for_many_requests() -> None:
    """Which tier they were in is not known; an agent's requests are below it for the most part."""
    usage = Usage(
        input=500_000, cached=0, output=0, total=500_000, models=(ModelUsage(model=PRO, input=500_000),)
    )
    assert told(cost(usage=usage)) == (Decimal("0.625"), "estimate")


def test_requests_that_are_not_all() -> None:
    """Where the CLI's sums have more than its journal, the sums are priced."""
    part = request(input=1_000)
    usage = usage_of(sums(part, part))
    assert told(cost(part, usage=usage)) == (Decimal("0.0025"), "estimate")


def test_a_request_without_a_name() -> None:
    """It was to the one model that all others were to, or to the one that was asked for."""
    nameless = request(None, input=1_000)
    usage = Usage(input=2_000, output=0)
    assert told(cost(request(input=1_000), nameless, usage=usage)) == (Decimal("0.0025"), "estimate")
    assert told(cost(nameless, usage=Usage(input=1_000, output=0), model=FLASH)) == (
        Decimal("0.0003"),
        "estimate",
    )


def test_the_price_is_that_of_the_day() -> None:
    """A run of last year is not priced by today's list."""
    old = msgspec.structs.replace(
        request("gemini-3.8-flash", input=10**6), at=int(datetime(2027, 1, 2, tzinfo=UTC).timestamp() * 1000)
    )
    assert cost(old).usd == Decimal("1.5")
    assert cost(request("gemini-3.8-flash", input=10**6)).usd == Decimal("0.75")


def test_a_mistake_costs_nobody_the_ending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A price file that is gone at the end: the cost is unknown, and the run ends all the same."""
    assert told(cost(request(input=1), prices=str(tmp_path / "gone.toml"))) == (None, "unknown")


def test_cost_goes_over_the_wire_as_numbers() -> None:
    """JSON numbers, exact in both directions; events that were recorded without cost still read."""
    made = Cost(usd=Decimal("0.0027375"), basis="exact", list_price=Decimal("1E-7"), auth_mode="key")
    finished = Finished(
        at=1,
        seq=1,
        attempt=1,
        turn=1,
        run_id="r",
        outcome="success",
        failure=None,
        reason=None,
        text="",
        answer="",
        session_id=None,
        clear_session=False,
        usage=None,
        attempts=1,
        exit_code=0,
        duration_ms=1,
        ended=(),
        complete=True,
        cost=made,
    )
    line = encode_event(finished)
    assert b'"usd":0.0027375,' in line
    assert decode_event(line) == finished
    bare = {name: value for name, value in msgspec.json.decode(line).items() if name != "cost"}
    read = decode_event(msgspec.json.encode(bare))
    assert isinstance(read, Finished) and read.cost is None


def test_the_prices_of_a_run_are_found_in_a_moment() -> None:
    """Under 100 µs a request, once they are loaded."""
    requests = [request(input=1_000 + n, cached=n, output=n) for n in range(1000)]
    cost(*requests[:1])
    began = time.perf_counter()
    assert cost(*requests).basis == "exact"
    assert (time.perf_counter() - began) / 1000 < 0.0001


def test_prices_are_loaded_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a process, not in the thread that reads the CLI, and not where no real model is asked."""
    loaded: list[str] = []
    import threading

    monkeypatch.setattr(module, "_warm_up", lambda: loaded.append(threading.current_thread().name))
    monkeypatch.setattr(module, "_prepared", False)
    module.prepare(Options(offline=True))
    assert loaded == []
    module.prepare(Options())
    module.prepare(Options())
    for thread in threading.enumerate():
        if thread.name == "geminids-prices":
            thread.join(5)
    assert loaded == ["geminids-prices"]
