"""Tests of budgets: the gateway does not forward a request that is over budget."""

from __future__ import annotations

import urllib.error
import urllib.request

from geminids.gateway import Reply
from geminids.gateway.lease import Lease
from geminids.gateway.messages import GatewayMessage, Halt
from geminids.gateway.registry import open_lease
from geminids.gateway.script.scripted_upstream import Scripted
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


def _send_requests(budgets: list[Budget], times: int) -> tuple[list[int], int, list[GatewayMessage]]:
    """Send `times` requests through a real gateway.
    Returns their statuses, the number of forwarded requests and the messages to the run."""
    forwarded: list[object] = []

    def reply(request: object) -> Reply:
        forwarded.append(request)
        return Reply(text="hi")

    messages: list[GatewayMessage] = []
    opened = open_lease(Lease(Scripted(reply), messages.append, budgets=budgets))
    opened.begin()
    try:
        statuses = [_ask(opened.url, opened.token) for _ in range(times)]
    finally:
        opened.close()
    return statuses, len(forwarded), messages


def test_request_budget() -> None:
    """With a budget of ten requests, ten of thirty are forwarded. The run gets `over_budget`."""
    budget = Budget(requests=10)
    statuses, forwarded, messages = _send_requests([budget], 30)
    assert statuses == [200] * 10 + [403] * 20
    assert forwarded == budget.spent.requests == 10
    assert {message.kind for message in messages if isinstance(message, Halt)} == {"over_budget"}


def test_request_over_one_budget_is_charged_to_none() -> None:
    """If one of two budgets refuses a request, the other budget releases what it had reserved."""
    sufficient, exhausted = Budget(requests=1), Budget(requests=0)
    assert _send_requests([sufficient, exhausted], 1)[:2] == ([403], 0)
    assert sufficient.spent == Spending()
    assert isinstance(sufficient.take(_MODEL, 400), Hold)


def test_runs_share_a_budget() -> None:
    """Two runs with the same budget share its limit."""
    shared = Budget(requests=3)
    assert _send_requests([shared], 2)[0] == [200, 200]
    assert _send_requests([shared], 2)[0] == [200, 403]
