"""What the gateway sees becomes events of the run, and its reason is the ending's."""

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


class Seen:
    """The events that the gateway's messages become."""

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

    def tell(self, *told: Any) -> list[Any]:
        self.events.clear()
        for one in told:
            self.lease.mailbox.put(one)
        self.gateway.read()
        return list(self.events)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(Places(tmp_path))


def answered(number: int = 1, **fields: Any) -> Answered:
    given: dict[str, Any] = {
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
    return Answered(**{**given, **fields})


def test_each_answer_is_told_with_its_tokens_and_times(seen: Seen) -> None:
    """The served model is the one that counts; numbers have no gaps."""
    (used,) = seen.tell(answered(served="m-001"))
    assert isinstance(used, TokensUsed)
    assert (used.model, used.input, used.cached, used.output, used.thinking) == ("m-001", 10, 1, 2, 3)
    assert (used.request, used.first_byte_ms, used.duration_ms, used.seq) == (1, 4, 5, 0)


def test_turns(seen: Seen) -> None:
    """Each new question of the main conversation is one; the same question again, and other requests, are not."""
    answers = [
        answered(1, role="router", turn=0),
        answered(2, turn=1),
        answered(3, role="subagent", turn=1),
        answered(4, turn=2),
        answered(5, turn=2, repeat=True),
    ]
    assert [event.turn for event in seen.tell(*answers)] == [1, 1, 1, 2, 2]


def test_each_request_has_its_role_status_and_price(seen: Seen) -> None:
    """The price is that of the served model, and None if nobody knows it."""
    (used, unknown) = seen.tell(
        answered(1, model="gemini-2.5-pro", served="gemini-2.5-flash-001", role="router"),
        answered(2, served="made-up"),
    )
    assert (used.role, used.status, used.requested_model) == ("router", 200, "gemini-2.5-pro")
    assert used.price == Decimal("0.00001523")
    assert unknown.price is None


@pytest.mark.parametrize(
    ("fields", "level", "code", "words", "status", "tokens"),
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
    ids=["refused", "not tried again", "broken", "given up"],
)
def test_a_request_that_failed(
    seen: Seen,
    fields: dict[str, Any],
    level: str,
    code: str,
    words: str,
    status: int | None,
    tokens: int | None,
) -> None:
    """It is reported as it happens, with attempt and status. A refusal costs nothing; else the tokens are unknown."""
    notice, used = seen.tell(answered(3, counts=None, attempt=2, **fields))
    assert isinstance(notice, Notice)
    assert (notice.level, notice.code, words in notice.message) == (level, code, True)
    assert (notice.retry, notice.request) == (Retry(2, status), 3)
    assert (used.input, used.output) == (tokens, tokens)


def test_what_never_reached_the_api_is_no_request(seen: Seen) -> None:
    """A notice says that it failed; nothing is counted."""
    (notice,) = seen.tell(answered(counts=None, status=None, whole=False, sent=False, fault="no such host"))
    assert notice.code == "retry"


def test_findings_are_notices_about_a_request(seen: Seen) -> None:
    """A discarded answer goes to the request log: no session file holds it."""
    seen.tell(answered(1))
    (notice,) = seen.tell(Finding("discarded", 1, "thrown away"))
    assert (notice.code, notice.request, notice.level) == ("discarded", 1, "warning")
    (logged,) = read_request_log(seen.places)
    assert (logged.request, logged.discarded, logged.input) == (1, True, 10)
    (notice,) = seen.tell(Finding("compression", 2, "shorter"))
    assert notice.level == "info"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY"])
def test_an_answer_that_did_not_end_with_stop(seen: Seen, reason: str) -> None:
    """A notice has the reason as its code; the reason of the last main answer is kept."""
    used, notice = seen.tell(answered(1, finish=reason))
    assert isinstance(used, TokensUsed)
    assert (notice.code, notice.request) == (reason.lower(), 1)
    assert seen.gateway.finish_reason == reason
    seen.tell(answered(2, role="search", finish="STOP"))
    assert seen.gateway.finish_reason == reason
    assert len(seen.tell(answered(3))) == 1
    assert seen.gateway.finish_reason == "STOP"


@pytest.mark.parametrize(
    "fields",
    [
        {"whole": False, "fault": "it was reset"},
        {"status": 500},
        {"status": None, "whole": False, "sent": False, "fault": "no such host"},
    ],
    ids=["interrupted", "refused", "not sent"],
)
def test_a_request_without_an_answer_has_no_finish_reason(seen: Seen, fields: dict[str, Any]) -> None:
    """The reason of the answer before it is not kept."""
    seen.tell(answered(1), answered(2, counts=None, finish=None, **fields))
    assert seen.gateway.finish_reason is None


def test_waiting_and_remarks_are_notices(seen: Seen) -> None:
    """With their own codes."""
    told = seen.tell(
        Waiting(number=4, seconds=2.5, reason="the API asked for it"), Remark(code="replay", text="x")
    )
    assert [(one.code, one.level) for one in told] == [("waiting", "info"), ("replay", "warning")]


@pytest.mark.parametrize(
    ("kind", "outcome", "failure"),
    [
        ("over_budget", "over_budget", None),
        ("model", "failed", "config"),
        ("mismatch", "failed", "bad_request"),
        ("gone", "failed", "network"),
    ],
)
def test_a_halt_ends_the_run(seen: Seen, kind: Any, outcome: str, failure: str | None) -> None:
    """The lane is told, and the ending is the halt's."""
    halt = Halt(kind=kind, message="enough", hint="more")
    seen.tell(halt, Halt(kind="gone", message="later", hint=""))
    assert seen.halts[-1] == seen.gateway.halted == halt, "the first word counts"
    ending = ending_of(halt)
    assert ending.reason is not None
    assert (ending.outcome, ending.reason.splitlines()[0]) == (outcome, "enough")
    assert "more" in (ending.failure.hint if ending.failure else ending.reason), "the next step is told"
    assert (ending.failure.kind if ending.failure else None) == failure


def test_what_the_gateway_knows_better(seen: Seen) -> None:
    """A broken way is named; other failures stay as the CLI told them."""
    failure = Failure(kind="network", message="fetch failed", retryable=True, hint="h")
    bare = Ending("failed", "fetch failed", failure)
    assert seen.gateway.explain(bare, answer="") is bare
    seen.tell(answered(counts=None, status=None, whole=False, fault="no such host: x.invalid"))
    explained = seen.gateway.explain(bare, answer="")
    assert explained.failure is not None
    assert "no such host: x.invalid" in explained.failure.message
    other = Ending("failed", "m", Failure(kind="auth", message="m", retryable=False, hint="h"))
    assert seen.gateway.explain(other, answer="") is other


@pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT", "OTHER", "MAX_TOKENS", "STOP"])
def test_what_a_filter_blocked_is_not_retryable(seen: Seen, reason: str) -> None:
    """The failure names the filter. A blocked run without a filter stays as it was told."""
    bare = Ending("failed", "m", Failure(kind="blocked", message="m", retryable=True, hint="h"))
    seen.tell(answered(finish=reason))
    explained = seen.gateway.explain(bare, answer="")
    if reason in ("MAX_TOKENS", "STOP"):
        assert explained is bare
        return
    assert explained.failure is not None
    assert (explained.failure.kind, explained.failure.retryable) == ("blocked", False)
    assert explained.reason == explained.failure.message == f"the API blocked the answer ({reason})"
