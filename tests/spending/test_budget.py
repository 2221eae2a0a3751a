"""Budgets: what is held before a request is sent, and what it costs when it has ended."""

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
_A_DOLLAR_A_THOUSAND = [ModelRate(model="gemini-*", input=1000, output=1000)]


def _taken(budget: Budget, size: int = 400, model: str = _MODEL) -> Hold:
    hold = budget.take(model, size)
    assert isinstance(hold, Hold)
    return hold


def _refused(budget: Budget, size: int = 400, model: str = _MODEL) -> BudgetRefusal:
    refusal = budget.take(model, size)
    assert isinstance(refusal, BudgetRefusal)
    return refusal


def test_what_is_on_its_way_counts() -> None:
    """Two requests at once cannot both take the last place."""
    budget = Budget(requests=1)
    _taken(budget)
    refusal = _refused(budget)
    assert refusal.kind == "over_budget"
    assert refusal.message == (
        "another request would exceed the budget of this batch: "
        "0 of 1 requests spent, 1 reserved for requests in flight"
    )


def test_many_threads_take_exactly_what_is_there() -> None:
    """100 threads, room for 10: ten leave."""
    budget = Budget(requests=10)
    start = threading.Barrier(100)

    def take(_: int) -> bool:
        start.wait()
        return isinstance(budget.take(_MODEL, 4), Hold)

    with ThreadPoolExecutor(100) as threads:
        assert sum(threads.map(take, range(100))) == 10


def test_the_input_must_fit_before_a_request_leaves() -> None:
    """A request of 100 tokens leaves where 100 are left, and not where 99 are."""
    assert isinstance(Budget(tokens=100).take(_MODEL, 400), Hold)
    refusal = _refused(Budget(tokens=99))
    assert "0 of 99 tokens spent, this request needs at least 100" in refusal.message


def test_an_answer_costs_what_it_told() -> None:
    """The held amount is replaced by the true cost, in tokens and dollars."""
    budget = Budget(dollars=1, prices=_A_DOLLAR_A_THOUSAND)
    _taken(budget).settle(_MODEL, Counts(input=90, output=200, thinking=10))
    assert budget.spent == Spending(dollars=Decimal("0.3"), tokens=300, requests=1)


def test_over_by_no_more_than_one_answer() -> None:
    """An answer may cost more than was left; after it, nothing leaves."""
    budget = Budget(tokens=150)
    _taken(budget).settle(_MODEL, Counts(input=100, output=900))
    assert budget.spent.tokens == 1000
    assert "1,000 of 150 tokens spent" in _refused(budget, size=0).message


def test_a_failed_request_costs_itself_and_no_tokens() -> None:
    """429, 500, no network: one request."""
    budget = Budget(requests=5)
    _taken(budget).settle(_MODEL, None)
    assert budget.spent == Spending(requests=1)


def test_an_answer_that_was_cut_costs_what_was_held() -> None:
    """It told no tokens, but the API had them in."""
    budget = Budget(tokens=1000)
    _taken(budget).settle(_MODEL, None, begun=True)
    assert budget.spent == Spending(tokens=100, requests=1)


def test_a_request_that_never_left_costs_nothing() -> None:
    """And its place is free again."""
    budget = Budget(requests=1)
    _taken(budget).settle(None, None)
    assert budget.spent == Spending()
    _taken(budget)


def test_a_request_ends_once() -> None:
    """A second ending changes nothing."""
    budget = Budget(requests=9)
    hold = _taken(budget)
    for _ in range(3):
        hold.settle(_MODEL, None)
    assert budget.spent.requests == 1


def test_dollars_are_exact() -> None:
    """Three times ten cents fit into thirty, and not a fourth."""
    budget = Budget(dollars=0.3, prices=_A_DOLLAR_A_THOUSAND)
    for _ in range(3):
        _taken(budget).settle(_MODEL, Counts(input=100))
    assert "$0.30 of $0.30 spent, this request needs at least $0.10" in _refused(budget).message


def test_dollars_without_a_price_are_refused() -> None:
    """Under a budget in dollars a model without a price is refused by name."""
    refusal = _refused(Budget(dollars=1, prices=_A_DOLLAR_A_THOUSAND), model="unheard-of")
    assert refusal.kind == "model"
    assert "unheard-of" in refusal.message and "limit tokens" in refusal.hint


def test_tokens_need_no_price() -> None:
    """A model that nobody knows may be used under a limit of tokens."""
    _taken(Budget(tokens=1000, prices=_A_DOLLAR_A_THOUSAND), model="unheard-of")


def test_a_served_model_without_price_costs_what_the_asked_one_does() -> None:
    """The API names another model than it was asked for: the price does not vanish."""
    budget = Budget(dollars=1, prices=_A_DOLLAR_A_THOUSAND)
    _taken(budget).settle("unheard-of", Counts(input=100))
    assert budget.spent.dollars == Decimal("0.1")


def test_dollars_go_by_list_price() -> None:
    """A dollar's worth of input leaves, and then nothing."""
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


def test_the_callers_prices_hold() -> None:
    """A model that nobody else knows, at a price of one's own."""
    assert isinstance(Budget(dollars=1).take("my-model", 4), BudgetRefusal)
    mine = [ModelRate(model="my-model", input=1, output=1)]
    budget = Budget(dollars=1, prices=mine)
    assert isinstance(budget.take("my-model", 4_000_000), Hold)
    assert isinstance(budget.take("my-model", 4), BudgetRefusal)


@pytest.mark.parametrize(
    "limits", [{}, {"dollars": -1}, {"tokens": -5}, {"dollars": float("nan")}, {"dollars": float("inf")}]
)
def test_a_budget_limits_something(limits: dict[str, float]) -> None:
    """None at all, or one that means nothing, is a mistake."""
    with pytest.raises(ValueError, match="budget"):
        Budget(**limits)  # type: ignore[arg-type]


def test_tokens_and_requests_need_no_prices() -> None:
    """The library of prices, a sixth of a second, is loaded for dollars alone."""
    code = (
        "import sys; from geminids.spending import Budget; Budget(tokens=5).take('m', 4); "
        "Budget(dollars=5); print('genai_prices' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
