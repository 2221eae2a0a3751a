"""Tests of budgets: what is reserved before a request is sent, and what is charged when it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from geminids.spending import Budget, ModelRate
from geminids.spending.budget import BudgetRefusal, Hold, Spending
from geminids.spending.tokens import Counts

_MODEL = "gemini-2.5-flash"
_DOLLAR_PER_1000_TOKENS = [ModelRate(model="gemini-*", input=1000, output=1000)]


def _take(budget: Budget, size: int = 400, model: str = _MODEL) -> Hold:
    hold = budget.take(model, size)
    assert isinstance(hold, Hold)
    return hold


def _take_refused(budget: Budget, size: int = 400, model: str = _MODEL) -> BudgetRefusal:
    refusal = budget.take(model, size)
    assert isinstance(refusal, BudgetRefusal)
    return refusal


def test_requests_in_flight_count() -> None:
    """A request in flight counts: two requests cannot both use the last unit of a budget."""
    budget = Budget(requests=1)
    _take(budget)
    refusal = _take_refused(budget)
    assert refusal.kind == "over_budget"
    assert refusal.message == (
        "another request would exceed the budget of this batch: "
        "0 of 1 requests spent, 1 reserved for requests in flight"
    )


def test_parallel_threads_never_exceed_the_budget() -> None:
    """If 100 threads use a budget of ten requests, exactly ten requests are allowed."""
    budget = Budget(requests=10)
    start = threading.Barrier(100)

    def take(_: int) -> bool:
        start.wait()
        return isinstance(budget.take(_MODEL, 4), Hold)

    with ThreadPoolExecutor(100) as threads:
        assert sum(threads.map(take, range(100))) == 10


def test_input_must_fit_into_the_budget() -> None:
    """A request of about 100 tokens is allowed if 100 tokens are left, and refused if 99 are."""
    assert isinstance(Budget(tokens=100).take(_MODEL, 400), Hold)
    refusal = _take_refused(Budget(tokens=99))
    assert "0 of 99 tokens spent, this request needs at least 100" in refusal.message


def test_answer_costs_its_reported_tokens() -> None:
    """The reserved amount is replaced by the real cost, in tokens and dollars."""
    budget = Budget(dollars=1, prices=_DOLLAR_PER_1000_TOKENS)
    _take(budget).settle(_MODEL, Counts(input=90, output=200, thinking=10))
    assert budget.spent == Spending(dollars=Decimal("0.3"), tokens=300, requests=1)


def test_only_one_answer_can_exceed_the_budget() -> None:
    """One answer may cost more than was left. After it, every request is refused."""
    budget = Budget(tokens=150)
    _take(budget).settle(_MODEL, Counts(input=100, output=900))
    assert budget.spent.tokens == 1000
    assert "1,000 of 150 tokens spent" in _take_refused(budget, size=0).message


def test_failed_request_costs_one_request() -> None:
    """A failed request costs one request and no tokens."""
    budget = Budget(requests=5)
    _take(budget).settle(_MODEL, None)
    assert budget.spent == Spending(requests=1)


def test_cut_answer_costs_the_reserved_tokens() -> None:
    """An answer without token counts costs the reserved input, because the API has read it."""
    budget = Budget(tokens=1000)
    _take(budget).settle(_MODEL, None, begun=True)
    assert budget.spent == Spending(tokens=100, requests=1)


def test_unsent_request_costs_nothing() -> None:
    """A request that was never sent costs nothing, and its reservation is released."""
    budget = Budget(requests=1)
    _take(budget).settle(None, None)
    assert budget.spent == Spending()
    _take(budget)


def test_settling_again_has_no_effect() -> None:
    """Settling a request more than once charges it only once."""
    budget = Budget(requests=9)
    hold = _take(budget)
    for _ in range(3):
        hold.settle(_MODEL, None)
    assert budget.spent.requests == 1


def test_dollars_are_exact() -> None:
    """Dollar amounts are exact: three times $0.10 fit into $0.30, and a fourth does not."""
    budget = Budget(dollars=0.3, prices=_DOLLAR_PER_1000_TOKENS)
    for _ in range(3):
        _take(budget).settle(_MODEL, Counts(input=100))
    assert "$0.30 of $0.30 spent, this request needs at least $0.10" in _take_refused(budget).message


def test_dollar_budget_refuses_a_model_without_a_price() -> None:
    """A dollar budget refuses a model without a price. The message contains the model's name."""
    refusal = _take_refused(Budget(dollars=1, prices=_DOLLAR_PER_1000_TOKENS), model="unknown-model")
    assert refusal.kind == "model"
    assert "unknown-model" in refusal.message and "limit tokens" in refusal.hint


def test_token_budget_allows_a_model_without_a_price() -> None:
    """A token budget also allows a model without a price."""
    _take(Budget(tokens=1000, prices=_DOLLAR_PER_1000_TOKENS), model="unknown-model")


def test_served_model_without_a_price() -> None:
    """If the model that answered has no price, the price of the requested model is charged."""
    budget = Budget(dollars=1, prices=_DOLLAR_PER_1000_TOKENS)
    _take(budget).settle("unknown-model", Counts(input=100))
    assert budget.spent.dollars == Decimal("0.1")


def test_dollar_budget_uses_list_prices() -> None:
    """Without a price table, a dollar budget uses the list prices."""
    budget = Budget(dollars=0.30)
    hold = budget.take("gemini-2.5-flash", 4_000_000)
    assert isinstance(hold, Hold)
    hold.settle("gemini-2.5-flash", Counts(input=1_000_000))
    refusal = budget.take("gemini-2.5-flash", 4)
    assert isinstance(refusal, BudgetRefusal)
    assert (
        refusal.message.startswith("another request would exceed the budget of this batch")
        and "$0.30 of $0.30" in refusal.message
    )


def test_dollar_budget_uses_the_callers_prices() -> None:
    """A price table makes a model without a list price usable under a dollar budget."""
    assert isinstance(Budget(dollars=1).take("my-model", 4), BudgetRefusal)
    prices = [ModelRate(model="my-model", input=1, output=1)]
    budget = Budget(dollars=1, prices=prices)
    assert isinstance(budget.take("my-model", 4_000_000), Hold)
    assert isinstance(budget.take("my-model", 4), BudgetRefusal)


@pytest.mark.parametrize(
    "limits", [{}, {"dollars": -1}, {"tokens": -5}, {"dollars": float("nan")}, {"dollars": float("inf")}]
)
def test_budget_needs_a_valid_limit(limits: dict[str, float]) -> None:
    """A budget without a limit, or with an invalid one, raises a ValueError."""
    with pytest.raises(ValueError, match="budget"):
        Budget(**limits)  # type: ignore[arg-type]


def test_price_library_is_loaded_only_for_dollars() -> None:
    """The price library, which loads slowly, is not imported before a
    dollar budget needs a price."""
    code = (
        "import sys; from geminids.spending import Budget; Budget(tokens=5).take('m', 4); "
        "Budget(dollars=5); print('genai_prices' in sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert completed.stdout == "False\n"
