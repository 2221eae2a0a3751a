"""Requests through the gateway under budgets: a request over budget is not sent."""

from __future__ import annotations

import urllib.error
import urllib.request

from geminids.gateway import Reply
from geminids.gateway.lease import Lease
from geminids.gateway.messages import GatewayMessage, Halt
from geminids.gateway.registry import open_lease
from geminids.gateway.script.scripted import Scripted
from geminids.spending import Budget
from geminids.spending.budget import Hold, Spending

_MODEL = "gemini-2.5-flash"


def _ask(url: str, token: str) -> int:
    body = b'{"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}'
    path = f"{url}/v1beta/models/{_MODEL}:generateContent"
    request = urllib.request.Request(
        path, body, {"x-goog-api-key": token, "content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _sent(budgets: list[Budget], times: int) -> tuple[list[int], int, list[GatewayMessage]]:
    """Send so many requests through a real gateway: their statuses, how many were forwarded, what was reported."""
    asked: list[object] = []

    def reply(request: object) -> Reply:
        asked.append(request)
        return Reply(text="hi")

    told: list[GatewayMessage] = []
    opened = open_lease(Lease(Scripted(reply), told.append, budgets=budgets))
    opened.begin()
    try:
        statuses = [_ask(opened.url, opened.token) for _ in range(times)]
    finally:
        opened.close()
    return statuses, len(asked), told


def test_thirty_requests_with_room_for_ten() -> None:
    """Exactly ten reach the API; the run gets `over_budget`."""
    budget = Budget(requests=10)
    statuses, asked, told = _sent([budget], 30)
    assert statuses == [200] * 10 + [403] * 20
    assert asked == budget.spent.requests == 10
    assert {one.kind for one in told if isinstance(one, Halt)} == {"over_budget"}


def test_all_budgets_or_none() -> None:
    """If a later budget has no room, an earlier one gets back what it held."""
    roomy, empty = Budget(requests=1), Budget(requests=0)
    assert _sent([roomy, empty], 1)[:2] == ([403], 0)
    assert roomy.spent == Spending()
    assert isinstance(roomy.take(_MODEL, 400), Hold)


def test_runs_that_share_a_budget_stop_together() -> None:
    """What one run has spent is missing for the other."""
    shared = Budget(requests=3)
    assert _sent([shared], 2)[0] == [200, 200]
    assert _sent([shared], 2)[0] == [200, 403]
