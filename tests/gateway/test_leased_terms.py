"""How the terms of a lease meet its requests: what is held, what is waited for, what a bad answer costs."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from geminids.gateway import Reply
from geminids.gateway.lease import Lease
from geminids.gateway.limits.rate_limiter import RateLimiter
from geminids.gateway.messages import Answered, GatewayMessage, Halt, Waiting
from geminids.gateway.registry import open_lease
from geminids.gateway.request import Request
from geminids.gateway.script.scripted import Scripted
from geminids.gateway.upstream import Body, Head, Part
from geminids.spending import Budget
from geminids.spending.budget import Spending

_MODEL = "gemini-2.5-flash"
_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}
_A_DAYS = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}


class _Run:
    """A lease that is in use, and what it was told."""

    def __init__(self, replies: list[Reply], rate_limiter: RateLimiter | None = None, **limits: Any) -> None:
        self.told: list[GatewayMessage] = []
        self.heard = threading.Condition()
        self.budget = Budget(**limits or {"requests": 99})
        self.opened = open_lease(
            Lease(Scripted(replies), self._tell, budgets=[self.budget], rate_limiter=rate_limiter)
        )
        self.opened.begin()

    def _tell(self, told: GatewayMessage) -> None:
        with self.heard:
            self.told.append(told)
            self.heard.notify_all()

    def wait_for(self, kind: type) -> Any:
        with self.heard:
            assert self.heard.wait_for(lambda: any(isinstance(one, kind) for one in self.told), 10)
            return next(one for one in self.told if isinstance(one, kind))

    def ask(self, text: str = "hello", timeout: float = 10, what: str = "") -> tuple[int, Any]:
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": text}]}]}).encode()
        request = urllib.request.Request(
            f"{self.opened.url}/v1beta/{what or f'models/{_MODEL}:generateContent'}",
            body,
            {"x-goog-api-key": self.opened.token, "content-type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def close(self) -> None:
        self.opened.close()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_request_costs_no_tokens(status: int) -> None:
    """It costs itself."""
    run = _Run([Reply(status=status, method="any")])
    assert run.ask()[0] == status
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent == Spending(requests=1)


def test_an_answer_whose_client_left_costs_its_input() -> None:
    """Nobody has told the tokens, and the API had the prompt."""
    run = _Run([Reply(text="hi", stall=True, method="any")])
    with pytest.raises((TimeoutError, urllib.error.URLError)):
        run.ask("x" * 4000, timeout=0.5)
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.requests == 1 and run.budget.spent.tokens > 1000


def test_who_leaves_while_it_waits_has_spent_nothing() -> None:
    """The request has never left."""
    pace = RateLimiter()
    pace.back_off(_MODEL, 30.0)
    run = _Run([], pace)
    with pytest.raises((TimeoutError, urllib.error.URLError)):
        run.ask(timeout=0.5)
    run.wait_for(Answered)
    run.close()
    assert run.wait_for(Waiting).seconds == pytest.approx(30, abs=1)
    assert run.budget.spent == Spending()


def test_a_refusal_is_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with `RetryInfo`: the next request to this model waits; with a day's quota it does not."""
    for details, waits in (([_RETRY], True), ([_RETRY, _A_DAYS], False)):
        pace = RateLimiter()
        run = _Run([Reply(status=429, details=details, method="any")], pace)
        assert run.ask()[0] == 429
        run.wait_for(Answered)
        if waits:
            with pytest.raises((TimeoutError, urllib.error.URLError)):
                run.ask(timeout=0.5)
        else:
            assert run.ask()[0] == 200
        run.close()


def test_too_early_for_the_rate_is_said_as_the_api_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with the seconds that are left; nothing was sent, and nothing is spent but the first request."""
    monkeypatch.setattr("geminids.gateway.limits.rate_limiter.MAX_WAIT", 0.2)
    run = _Run([], RateLimiter(1))
    assert run.ask()[0] == 200
    status, said = run.ask()
    run.close()
    assert status == 429 and run.budget.spent.requests == 1
    assert said["error"]["details"][0]["retryDelay"] == "60s"


_PAID = (
    "models/veo-3:predictLongRunning",
    f"models/{_MODEL}:batchGenerateContent",
    "cachedContents",
    "tunedModels",
)


@pytest.mark.parametrize("what", [*_PAID, f"models/{_MODEL}:embedContent"])
def test_all_that_is_paid_for_is_a_request(what: str) -> None:
    """A tool has the run's token, and may ask for more than a CLI does."""
    run = _Run([])
    run.ask(what=what)
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.requests == 1


@pytest.mark.parametrize("what", [f"models/{_MODEL}:countTokens", "files", "files?a=1"])
def test_what_is_free_is_none(what: str) -> None:
    """Counting tokens and naming files cost nothing."""
    run = _Run([])
    run.ask(what=what)
    run.close()
    assert run.budget.spent == Spending()


@pytest.mark.parametrize("what", _PAID)
def test_what_is_not_told_in_tokens_does_not_leave(what: str) -> None:
    """A budget in tokens would not see a film, nor a batch that is answered tomorrow."""
    run = _Run([], tokens=1_000_000)
    assert run.ask(what=what)[0] == 403
    assert "does not report the tokens" in run.wait_for(Halt).message
    run.close()
    assert run.budget.spent == Spending()


def test_an_embedding_costs_its_input() -> None:
    """The API tells no tokens for it."""
    run = _Run([], tokens=1_000_000)
    run.opened.lease.upstream = _Embedding()
    assert run.ask("x" * 4000, what=f"models/{_MODEL}:embedContent")[0] == 200
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.tokens == pytest.approx(1000, abs=50)


class _Embedding:
    async def answer(self, request: Request) -> AsyncIterator[Part]:
        yield Head(200, {"content-type": "application/json"})
        yield Body(b'{"embedding": {"values": [0.1]}}')
