"""Create the budgets for the limits that the options of a run set.

This module is imported only if the options set a limit.
"""

from __future__ import annotations

from geminids.config.paths import Places
from geminids.options import Options
from geminids.spending.budget import BaseBudget, Budget, Limits
from geminids.spending.daily_budget import DailyBudget
from geminids.spending.prices import pricing
from geminids.spending.table import read_prices

__all__ = ["create_budgets"]


def create_budgets(options: Options, name: str, recorded_in: str | None) -> list[BaseBudget]:
    """Create the budget of the run and the daily budget, if the options have limits for them.

    `name` is the name of the run in messages. If a tool of an outer run started this run, the outer
    run already records the requests of this run, in the folder `recorded_in`. The daily budget of
    this run does not record them in the same folder again. If there is no outer run that records
    them, `recorded_in` is None.
    """
    budgets: list[BaseBudget] = []
    prices = None if options.prices is None else read_prices(options.prices)
    dollars, tokens, requests = options.max_budget, options.max_tokens, options.max_requests
    if (dollars, tokens, requests) != (None, None, None):
        budgets.append(Budget(dollars=dollars, tokens=tokens, requests=requests, prices=prices, name=name))
    daily = Limits(dollars=options.day_budget, tokens=options.day_tokens, requests=options.day_requests)
    if daily:
        folder = Places.of().root / "spent"
        # Always pass prices: another run of the same day may have a budget in dollars.
        budgets.append(DailyBudget(folder, daily, pricing(prices), is_recorded=recorded_in != str(folder)))
    return budgets
