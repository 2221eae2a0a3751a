"""A budget that several runs share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from geminids.gateway.purse import Hold
from geminids.gateway.told import Counts, Halt
from geminids.prices import Budget, ModelRate


def test_dollars_go_by_list_price() -> None:
    """A dollar's worth of input leaves, and then nothing."""
    budget = Budget(dollars=0.30)
    hold = budget.take("gemini-2.5-flash", 4_000_000)
    assert isinstance(hold, Hold)
    hold.settle("gemini-2.5-flash", Counts(input=1_000_000))
    halt = budget.take("gemini-2.5-flash", 4)
    assert isinstance(halt, Halt)
    assert (
        halt.message.startswith("the budget of this batch has no room") and "$0.30 of $0.30" in halt.message
    )


def test_the_callers_prices_hold() -> None:
    """A model that nobody else knows, at a price of one's own."""
    assert isinstance(Budget(dollars=1).take("my-model", 4), Halt)
    mine = [ModelRate(model="my-model", input=1, output=1)]
    budget = Budget(dollars=1, prices=mine)
    assert isinstance(budget.take("my-model", 4_000_000), Hold)
    assert isinstance(budget.take("my-model", 4), Halt)


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
        "import sys; from geminids.prices import Budget; Budget(tokens=5).take('m', 4); "
        "Budget(dollars=5); print('genai_prices' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
