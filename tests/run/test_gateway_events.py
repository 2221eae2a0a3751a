"""Tests of `GatewayEvents`: messages of the gateway become events of the run and decide how it
ends."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from geminids import Notice, Options, TokensUsed
from geminids.config.paths import Places
from geminids.events.model import Retry
from geminids.gateway.messages import Answered, Finding, Halt, Remark, Waiting
from geminids.gateway.request_log import RequestLog, read_request_log
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.redact import Redactor
from geminids.run.accounting.cost import Prices
from geminids.run.accounting.lease import RunLease
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.recorder import RunRecorder
from geminids.spending.tokens import Counts


class Observed:
    """A `GatewayEvents` with its lease and queue; collects the events and halts."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.lease = RunLease(Options())
        self.recorder = RunRecorder()
        self.recorder.redactor = Redactor(["a-secret-value"])
        self.events: list[Any] = []
        self.halts: list[Halt] = []
        self.gateway = GatewayEvents(
            self.lease,
            self.recorder,
            Prices(Options(), "key", metered=True),
            RequestLog("run-1", lambda: ("s", "/repo"), places=places),
            self.events.extend,
            self.halts.append,
        )

    def deliver(self, *messages: Any) -> list[Any]:
        self.events.clear()
        for message in messages:
            self.lease.queue.put(message)
        self.gateway.read()
        return list(self.events)


@pytest.fixture
def observed(tmp_path: Path) -> Observed:
    return Observed(Places(tmp_path))


def answered(number: int = 1, **fields: Any) -> Answered:
    defaults: dict[str, Any] = {
        "number": number,
        "at": 1,
        "model": "m",
        "served": None,
        "role": "main",
        "attempt": 1,
        "body": number,
        "repeat": False,
        "turn": number,
        "status": 200,
        "counts": Counts(input=10, cached=1, output=2, thinking=3, tool=0),
        "finish": "STOP",
        "calls": 0,
        "thoughts": 0,
        "waited_ms": 0,
        "first_byte_ms": 4,
        "duration_ms": 5,
        "whole": True,
    }
    return Answered(**{**defaults, **fields})


def test_each_answer_is_reported_with_its_tokens_and_times(observed: Observed) -> None:
    """An answered request becomes `TokensUsed` with the model that answered, its tokens and its
    times."""
    (used,) = observed.deliver(answered(served="m-001"))
    assert isinstance(used, TokensUsed)
    assert (used.model, used.input, used.cached, used.output, used.thinking) == ("m-001", 10, 1, 2, 3)
    assert (used.request, used.first_byte_ms, used.duration_ms, used.seq) == (1, 4, 5, 0)


def test_new_main_requests_start_turns(observed: Observed) -> None:
    """Each new request of the main conversation starts a turn.

    A repeated request, and requests of other roles, do not.
    """
    answers = [
        answered(1, role="router", turn=0),
        answered(2, turn=1),
        answered(3, role="subagent", turn=1),
        answered(4, turn=2),
        answered(5, turn=2, repeat=True),
    ]
    assert [event.turn for event in observed.deliver(*answers)] == [1, 1, 1, 2, 2]


def test_each_request_has_its_role_status_and_price(observed: Observed) -> None:
    """`TokensUsed` has the price of the model that answered; the price of an unknown model is
    None."""
    (used, unknown) = observed.deliver(
        answered(1, model="gemini-2.5-pro", served="gemini-2.5-flash-001", role="router"),
        answered(2, served="made-up"),
    )
    assert (used.role, used.status, used.requested_model) == ("router", 200, "gemini-2.5-pro")
    assert used.price == Decimal("0.00001523")
    assert unknown.price is None


@pytest.mark.parametrize(
    ("fields", "level", "code", "message", "status", "tokens"),
    [
        ({"status": 429, "error": "slow down"}, "warning", "retry", "HTTP 429: slow down", 429, 0),
        ({"status": 400, "error": "a-secret-value"}, "warning", "request", "HTTP 400: ***", 400, 0),
        (
            {"status": None, "fault": "it was reset", "whole": False},
            "warning",
            "retry",
            "it was reset",
            None,
            None,
        ),
        ({"whole": False}, "info", "request", "given up by the CLI", None, None),
    ],
    ids=["refused", "not retried", "broken", "given up"],
)
def test_a_failed_request_is_a_notice(
    observed: Observed,
    fields: dict[str, Any],
    level: str,
    code: str,
    message: str,
    status: int | None,
    tokens: int | None,
) -> None:
    """A failed request becomes a notice with attempt and status.

    A refused request used no tokens; otherwise the tokens are unknown.
    """
    notice, used = observed.deliver(answered(3, counts=None, attempt=2, **fields))
    assert isinstance(notice, Notice)
    assert (notice.level, notice.code, message in notice.message) == (level, code, True)
    assert (notice.retry, notice.request) == (Retry(2, status), 3)
    assert (used.input, used.output) == (tokens, tokens)


def test_an_unsent_request_is_not_counted(observed: Observed) -> None:
    """A request that did not reach the API becomes a notice, and no `TokensUsed`."""
    (notice,) = observed.deliver(
        answered(counts=None, status=None, whole=False, sent=False, fault="no such host")
    )
    assert notice.code == "retry"


def test_findings_are_notices_about_a_request(observed: Observed) -> None:
    """A finding becomes a notice.

    A discarded answer is also written to the request log, because no session file contains it.
    """
    observed.deliver(answered(1))
    (notice,) = observed.deliver(Finding("discarded", 1, "thrown away"))
    assert (notice.code, notice.request, notice.level) == ("discarded", 1, "warning")
    (logged,) = read_request_log(observed.places)
    assert (logged.request, logged.discarded, logged.input) == (1, True, 10)
    (notice,) = observed.deliver(Finding("compression", 2, "shorter"))
    assert notice.level == "info"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY"])
def test_an_unusual_finish_reason_is_a_notice(observed: Observed, reason: str) -> None:
    """Another finish reason than STOP becomes a notice with the reason as its code.

    `finish_reason` is that of the last main answer.
    """
    used, notice = observed.deliver(answered(1, finish=reason))
    assert isinstance(used, TokensUsed)
    assert (notice.code, notice.request) == (reason.lower(), 1)
    assert observed.gateway.finish_reason == reason
    observed.deliver(answered(2, role="search", finish="STOP"))
    assert observed.gateway.finish_reason == reason
    assert len(observed.deliver(answered(3))) == 1
    assert observed.gateway.finish_reason == "STOP"


@pytest.mark.parametrize(
    "fields",
    [
        {"whole": False, "fault": "it was reset"},
        {"status": 500},
        {"status": None, "whole": False, "sent": False, "fault": "no such host"},
    ],
    ids=["interrupted", "refused", "not sent"],
)
def test_a_request_without_an_answer_has_no_finish_reason(observed: Observed, fields: dict[str, Any]) -> None:
    """After a request without an answer, `finish_reason` is None and not that of the answer
    before."""
    observed.deliver(answered(1), answered(2, counts=None, finish=None, **fields))
    assert observed.gateway.finish_reason is None


def test_waiting_and_remarks_are_notices(observed: Observed) -> None:
    """Waits and remarks become notices with their own codes."""
    notices = observed.deliver(
        Waiting(number=4, seconds=2.5, reason="the API asked for it"), Remark(code="replay", text="x")
    )
    assert [(notice.code, notice.level) for notice in notices] == [("waiting", "info"), ("replay", "warning")]


@pytest.mark.parametrize(
    ("kind", "outcome", "failure"),
    [
        ("over_budget", "over_budget", "over_budget"),
        ("model", "failed", "config"),
        ("mismatch", "failed", "bad_request"),
        ("gone", "failed", "network"),
    ],
)
def test_a_halt_ends_the_run(observed: Observed, kind: Any, outcome: str, failure: str | None) -> None:
    """The first halt stops the attempt and decides how the run ends; later halts are ignored."""
    halt = Halt(kind=kind, message="enough", hint="more")
    observed.deliver(halt, Halt(kind="gone", message="later", hint=""))
    assert observed.halts[-1] == observed.gateway.halted == halt, "the first halt counts"
    ending = ending_of(halt)
    assert ending.reason is not None
    assert (ending.outcome, ending.reason.splitlines()[0]) == (outcome, "enough")
    assert "more" in (ending.failure.hint if ending.failure else ending.reason), "the next step is shown"
    assert (ending.failure.kind if ending.failure else None) == failure


def test_a_network_failure_is_explained(observed: Observed) -> None:
    """A network failure gets the gateway's description of the broken connection; other failures
    keep the CLI's message."""
    failure = Failure(kind="network", message="fetch failed", retryable=True, hint="h")
    bare = Ending("failed", "fetch failed", failure)
    assert observed.gateway.explain(bare, answer="") is bare
    observed.deliver(answered(counts=None, status=None, whole=False, fault="no such host: x.invalid"))
    explained = observed.gateway.explain(bare, answer="")
    assert explained.failure is not None
    assert "no such host: x.invalid" in explained.failure.message
    other = Ending("failed", "m", Failure(kind="auth", message="m", retryable=False, hint="h"))
    assert observed.gateway.explain(other, answer="") is other


@pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT", "OTHER", "MAX_TOKENS", "STOP"])
def test_a_blocked_answer_is_not_retryable(observed: Observed, reason: str) -> None:
    """If a filter blocked the answer, the failure names the filter and is not retryable.

    Otherwise it is unchanged.
    """
    bare = Ending("failed", "m", Failure(kind="blocked", message="m", retryable=True, hint="h"))
    observed.deliver(answered(finish=reason))
    explained = observed.gateway.explain(bare, answer="")
    if reason in ("MAX_TOKENS", "STOP"):
        assert explained is bare
        return
    assert explained.failure is not None
    assert (explained.failure.kind, explained.failure.retryable) == ("blocked", False)
    assert explained.reason == explained.failure.message == f"the API blocked the answer ({reason})"
