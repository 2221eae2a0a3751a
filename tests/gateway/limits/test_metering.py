"""Tests of metering: how requests of a lease are charged, delayed and blocked."""

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
from geminids.gateway.script.scripted_upstream import Scripted
from geminids.gateway.upstream import Body, Head, Part
from geminids.spending import Budget
from geminids.spending.budget import Spending

_MODEL = "gemini-2.5-flash"
_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "30s"}
_DAILY_QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}


class _Run:
    """A lease in use and the messages that it received."""

    def __init__(
        self,
        replies: list[Reply],
        rate_limiter: RateLimiter | None = None,
        max_attempts: int | None = None,
        **limits: Any,
    ) -> None:
        self.messages: list[GatewayMessage] = []
        self.changed = threading.Condition()
        self.budget = Budget(**limits or {"requests": 99})
        self.opened = open_lease(
            Lease(
                Scripted(replies),
                self._receive,
                budgets=[self.budget],
                rate_limiter=rate_limiter,
                max_attempts=max_attempts,
            )
        )
        self.opened.begin()

    def _receive(self, message: GatewayMessage) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait_for(self, kind: type) -> Any:
        with self.changed:
            assert self.changed.wait_for(lambda: any(isinstance(m, kind) for m in self.messages), 10)
            return next(message for message in self.messages if isinstance(message, kind))

    def ask(self, text: str = "hello", timeout: float = 10, path: str = "") -> tuple[int, Any]:
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": text}]}]}).encode()
        request = urllib.request.Request(
            f"{self.opened.url}/v1beta/{path or f'models/{_MODEL}:generateContent'}",
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
def test_failed_request_costs_no_tokens(status: int) -> None:
    """A failed request counts as one request and costs no tokens."""
    run = _Run([Reply(status=status, method="any")])
    assert run.ask()[0] == status
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent == Spending(requests=1)


def test_the_last_attempt_of_a_utility_request() -> None:
    """The last attempt that `max_attempts` allows gets an error after which the CLI does not send the
    request again. Earlier attempts, answers and errors of the conversation are passed on."""
    failing = Reply(status=503, error="busy", method="any", times=3)
    run = _Run([failing, Reply(text="hi", method="any", times=2)], max_attempts=2)
    assert run.ask()[0] == 503
    status, body = run.ask()
    assert (status, body["error"]["message"]) == (400, "HTTP 503: busy (attempt 2 of 2)")
    assert run.ask(path=f"models/{_MODEL}:streamGenerateContent")[0] == 503
    assert run.ask()[0] == 200
    run.close()
    statuses = [message.status for message in run.messages if isinstance(message, Answered)]
    assert statuses == [503, 503, 503, 200], "the run learns what the API answered"


def test_cancelled_request_costs_its_input() -> None:
    """If the client leaves before the token counts arrive, the input is charged by an estimate."""
    run = _Run([Reply(text="hi", stall=True, method="any")])
    with pytest.raises((TimeoutError, urllib.error.URLError)):
        run.ask("x" * 4000, timeout=0.5)
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.requests == 1 and run.budget.spent.tokens > 1000


def test_request_cancelled_while_waiting_costs_nothing() -> None:
    """A request that is cancelled while it waits for a back-off is not sent and costs nothing."""
    rate_limiter = RateLimiter()
    rate_limiter.back_off(_MODEL, 30.0)
    run = _Run([], rate_limiter)
    with pytest.raises((TimeoutError, urllib.error.URLError)):
        run.ask(timeout=0.5)
    run.wait_for(Answered)
    run.close()
    assert run.wait_for(Waiting).seconds == pytest.approx(30, abs=1)
    assert run.budget.spent == Spending()


def test_backoff_delays_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 429 with `RetryInfo`, the next request to this model waits.
    If the daily quota is exhausted, it does not wait."""
    for details, waits in (([_RETRY], True), ([_RETRY, _DAILY_QUOTA], False)):
        rate_limiter = RateLimiter()
        run = _Run([Reply(status=429, details=details, method="any")], rate_limiter)
        assert run.ask()[0] == 429
        run.wait_for(Answered)
        if waits:
            with pytest.raises((TimeoutError, urllib.error.URLError)):
                run.ask(timeout=0.5)
        else:
            assert run.ask()[0] == 200
        run.close()


def test_request_over_the_rate_limit_gets_429(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that would wait too long gets a 429 with the remaining seconds.
    It is not sent and costs nothing."""
    monkeypatch.setattr("geminids.gateway.limits.rate_limiter.MAX_WAIT", 0.2)
    run = _Run([], RateLimiter(1))
    assert run.ask()[0] == 200
    status, answer = run.ask()
    run.close()
    assert status == 429 and run.budget.spent.requests == 1
    assert answer["error"]["details"][0]["retryDelay"] == "60s"


_PAID = (
    "models/veo-3:predictLongRunning",
    f"models/{_MODEL}:batchGenerateContent",
    "cachedContents",
    "tunedModels",
)


@pytest.mark.parametrize("path", [*_PAID, f"models/{_MODEL}:embedContent"])
def test_every_paid_path_counts_as_a_request(path: str) -> None:
    """Every paid API path counts as a request: a tool with the run's token
    may use more than the CLI."""
    run = _Run([])
    run.ask(path=path)
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.requests == 1


@pytest.mark.parametrize("path", [f"models/{_MODEL}:countTokens", "files", "files?a=1"])
def test_free_paths_cost_nothing(path: str) -> None:
    """Counting tokens and requests for files do not count as requests."""
    run = _Run([])
    run.ask(path=path)
    run.close()
    assert run.budget.spent == Spending()


@pytest.mark.parametrize("path", _PAID)
def test_a_token_budget_blocks_requests_without_token_counts(path: str) -> None:
    """A token budget blocks requests whose answers have no token counts,
    such as videos and batches."""
    run = _Run([], tokens=1_000_000)
    assert run.ask(path=path)[0] == 403
    assert "does not report the tokens" in run.wait_for(Halt).message
    run.close()
    assert run.budget.spent == Spending()


def test_embedding_costs_its_input() -> None:
    """An embedding is charged by an estimate of its input, because the API
    reports no tokens for it."""
    run = _Run([], tokens=1_000_000)
    run.opened.lease.upstream = _Embedding()
    assert run.ask("x" * 4000, path=f"models/{_MODEL}:embedContent")[0] == 200
    run.wait_for(Answered)
    run.close()
    assert run.budget.spent.tokens == pytest.approx(1000, abs=50)


class _Embedding:
    async def answer(self, request: Request) -> AsyncIterator[Part]:
        yield Head(200, {"content-type": "application/json"})
        yield Body(b'{"embedding": {"values": [0.1]}}')
