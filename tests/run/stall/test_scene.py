"""What is gathered for the watch: which failure is still followed by an attempt, and of how many."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from geminids import Options
from geminids.gateway.messages import Answered
from geminids.gemini.protocol.stderr import Remark
from geminids.run.stall.snapshot import Failed, Situation, situation_of


def situation(**fields: Any) -> Situation:
    options = Options(**{"model": "flash", **fields.pop("options", {})})
    given: dict[str, Any] = {"tools": (), "gateway": None, "retried": None, "spoke_at": 0.0, **fields}
    return situation_of(options, 1, **given)


def gateway(ago: float, **fields: Any) -> Any:
    """What the gateway reports of a request that failed so many seconds ago."""
    about: dict[str, Any] = {"number": 1, "at": 0, "model": "m", "served": None}
    about |= {"role": "main", "attempt": 1, "body": 7, "status": 500, "counts": None, "finish": None}
    about |= {
        "calls": 0,
        "thoughts": 0,
        "waited_ms": 0,
        "first_byte_ms": None,
        "duration_ms": 1,
        "whole": True,
        "repeat": False,
        "turn": 1,
    }
    told = {**about, **fields}
    return SimpleNamespace(failed=(Answered(**told), time.monotonic() - ago), in_flight=[])


@pytest.mark.parametrize(
    ("attempt", "wait", "left"), [(1, None, 5), (2, None, 10), (9, None, 30), (1, 12, 12)]
)
def test_when_the_next_attempt_comes(attempt: int, wait: float | None, left: float) -> None:
    """What the CLI or the API has named, and else the CLI's own back-off."""
    assert Failed(attempt, 500, 140.0, wait).next_in(140.0) == left


@pytest.mark.parametrize(
    ("ago", "fields", "awaited"),
    [
        (1.0, {}, True),
        (8.0, {}, True),
        (9.0, {}, False),
        (1.0, {"status": 429}, True),
        (1.0, {"status": None, "whole": False, "fault": "refused"}, True),
        (1.0, {"status": 400}, False),
        (1.0, {"status": 403}, False),
        (1.0, {"attempt": 9}, True),
        (1.0, {"attempt": 10}, False),
        (60.0, {"retry_after": 60.0}, True),
    ],
)
def test_a_failure_that_another_attempt_follows(ago: float, fields: dict[str, Any], awaited: bool) -> None:
    """Not a request that is wrong, nor the last attempt, nor one whose next should have come long ago."""
    found = situation(gateway=gateway(ago, **fields))
    assert (found.failed is not None) is awaited


def test_a_retry_that_stderr_has_told() -> None:
    """Until the CLI speaks, or its time has come: it has named it exactly."""
    now = time.monotonic()
    remark = Remark("warning", "retry", "…", 3, 429, 12.0)
    assert situation(retried=(remark, now - 11)).failed == Failed(3, 429, now - 11, 12.0, is_exact=True)
    assert situation(retried=(remark, now - 11), spoke_at=now).failed is None
    late = situation(retried=(remark, now - 15))
    assert (late.failed, late.tried) == (None, 3)


@pytest.mark.parametrize(("options", "of"), [({}, 10), ({"model": "auto"}, None), ({"max_attempts": 4}, 4)])
def test_of_how_many(options: dict[str, Any], of: int | None) -> None:
    """What the CLI does for a named model, or what was asked for; None for `auto`, which changes the model."""
    assert situation(options=options).attempts == of


def test_our_own_refusal_is_known_as_such() -> None:
    """The gateway itself answers 429 for `requests_per_minute`: that is not the API's."""
    early = gateway(1.0, status=429, error="too early", retry_after=20.0, held=True)
    found = situation(gateway=early).failed
    assert found is not None and found.held == "too early"
    other = situation(gateway=gateway(1.0, status=429, error="Quota", retry_after=20.0)).failed
    assert other is not None and other.held is None
