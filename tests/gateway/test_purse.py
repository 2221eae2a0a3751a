"""A budget is a wall: what is held before a request leaves, and what it costs when it is over."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from geminids.gateway import Reply
from geminids.gateway.host import open_lease
from geminids.gateway.lease import Lease
from geminids.gateway.purse import Hold, Limits, Purse, Spending
from geminids.gateway.scripted import Scripted
from geminids.gateway.told import Counts, Halt, Told

_MODEL = "gemini-2.5-flash"


def _a_dollar_a_thousand(model: str, counts: Counts) -> Decimal | None:
    return None if model == "unheard-of" else Decimal(counts.total) / 1000


def _taken(purse: Purse, size: int = 400, model: str = _MODEL) -> Hold:
    hold = purse.take(model, size)
    assert isinstance(hold, Hold)
    return hold


def _refused(purse: Purse, size: int = 400, model: str = _MODEL) -> Halt:
    halt = purse.take(model, size)
    assert isinstance(halt, Halt)
    return halt


def test_what_is_on_its_way_counts() -> None:
    """Two requests at once cannot both take the last place."""
    purse = Purse("this run", Limits(requests=1))
    _taken(purse)
    halt = _refused(purse)
    assert halt.kind == "over_budget"
    assert halt.message == (
        "the budget of this run has no room for another request: "
        "0 of 1 requests spent, 1 held by requests on their way"
    )


def test_many_threads_take_exactly_what_is_there() -> None:
    """100 threads, room for 10: ten leave."""
    purse = Purse("this run", Limits(requests=10))
    start = threading.Barrier(100)

    def take(_: int) -> bool:
        start.wait()
        return isinstance(purse.take(_MODEL, 4), Hold)

    with ThreadPoolExecutor(100) as threads:
        assert sum(threads.map(take, range(100))) == 10


def test_the_input_must_fit_before_a_request_leaves() -> None:
    """A request of 100 tokens leaves where 100 are left, and not where 99 are."""
    assert isinstance(Purse("this run", Limits(tokens=100)).take(_MODEL, 400), Hold)
    halt = _refused(Purse("this run", Limits(tokens=99)))
    assert "0 of 99 tokens spent, and this one takes 100 at least" in halt.message


def test_an_answer_costs_what_it_told() -> None:
    """What was held is given back, and the true price is spent, in tokens and dollars."""
    purse = Purse("this run", Limits(dollars=1), _a_dollar_a_thousand)
    _taken(purse).settle(_MODEL, Counts(input=90, output=200, thinking=10))
    assert purse.spent == Spending(dollars=Decimal("0.3"), tokens=300, requests=1)


def test_over_by_no_more_than_one_answer() -> None:
    """An answer may cost more than was left; after it, nothing leaves."""
    purse = Purse("this run", Limits(tokens=150))
    _taken(purse).settle(_MODEL, Counts(input=100, output=900))
    assert purse.spent.tokens == 1000
    assert "1,000 of 150 tokens spent" in _refused(purse, size=0).message


def test_a_failed_request_costs_itself_and_no_tokens() -> None:
    """429, 500, no network: one request."""
    purse = Purse("this run", Limits(requests=5))
    _taken(purse).settle(_MODEL, None)
    assert purse.spent == Spending(requests=1)


def test_an_answer_that_was_cut_costs_what_was_held() -> None:
    """It told no tokens, but the API had them in."""
    purse = Purse("this run", Limits(tokens=1000))
    _taken(purse).settle(_MODEL, None, begun=True)
    assert purse.spent == Spending(tokens=100, requests=1)


def test_a_request_that_never_left_costs_nothing() -> None:
    """And its place is free again."""
    purse = Purse("this run", Limits(requests=1))
    _taken(purse).settle(None, None)
    assert purse.spent == Spending()
    _taken(purse)


def test_a_request_ends_once() -> None:
    """A second ending changes nothing."""
    purse = Purse("this run", Limits(requests=9))
    hold = _taken(purse)
    for _ in range(3):
        hold.settle(_MODEL, None)
    assert purse.spent.requests == 1


def test_dollars_are_exact() -> None:
    """Three times ten cents fit into thirty, and not a fourth."""
    purse = Purse("this run", Limits(dollars=0.3), _a_dollar_a_thousand)
    for _ in range(3):
        _taken(purse).settle(_MODEL, Counts(input=100))
    assert "$0.30 of $0.30 spent, and this one takes $0.10 at least" in _refused(purse).message


@pytest.mark.parametrize("price", [_a_dollar_a_thousand, None])
def test_dollars_without_a_price_are_refused(price: object) -> None:
    """A budget in dollars is no hope: nobody knows the price, so nothing leaves, and the model is named."""
    halt = _refused(Purse("this run", Limits(dollars=1), price), model="unheard-of")  # type: ignore[arg-type]
    assert halt.kind == "model"
    assert "unheard-of" in halt.message and "limit tokens" in halt.hint


def test_tokens_need_no_price() -> None:
    """A model that nobody knows may be used under a limit of tokens."""
    _taken(Purse("this run", Limits(tokens=1000), _a_dollar_a_thousand), model="unheard-of")


def test_a_served_model_without_price_costs_what_the_asked_one_does() -> None:
    """The API names another model than it was asked for: the price does not vanish."""
    purse = Purse("this run", Limits(dollars=1), _a_dollar_a_thousand)
    _taken(purse).settle("unheard-of", Counts(input=100))
    assert purse.spent.dollars == Decimal("0.1")


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


def _sent(purses: list[Purse], times: int) -> tuple[list[int], int, list[Told]]:
    """The statuses of so many requests through the real door, how many came through, and what was told."""
    asked: list[object] = []

    def reply(request: object) -> Reply:
        asked.append(request)
        return Reply(text="hi")

    told: list[Told] = []
    opened = open_lease(Lease(Scripted(reply), told.append, purses=purses))
    opened.begin()
    try:
        statuses = [_ask(opened.url, opened.token) for _ in range(times)]
    finally:
        opened.close()
    return statuses, len(asked), told


def test_thirty_requests_with_room_for_ten() -> None:
    """Exactly ten reach the API; the run is told once that it is over."""
    purse = Purse("this run", Limits(requests=10))
    statuses, asked, told = _sent([purse], 30)
    assert statuses == [200] * 10 + [403] * 20
    assert asked == purse.spent.requests == 10
    assert {one.kind for one in told if isinstance(one, Halt)} == {"over_budget"}


def test_all_purses_or_none() -> None:
    """Where a later purse has no room, an earlier one has its money back."""
    roomy, empty = Purse("this batch", Limits(requests=1)), Purse("this run", Limits(requests=0))
    assert _sent([roomy, empty], 1)[:2] == ([403], 0)
    assert roomy.spent == Spending()
    _taken(roomy)


def test_runs_that_share_a_purse_stop_together() -> None:
    """What one has spent, the other has not."""
    shared = Purse("this batch", Limits(requests=3))
    assert _sent([shared], 2)[0] == [200, 200]
    assert _sent([shared], 2)[0] == [200, 403]
