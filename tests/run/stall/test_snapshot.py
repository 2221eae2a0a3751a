"""Tests of `situation_of`: which failed request is expected to be retried, and how many attempts
there are."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from geminids import Options
from geminids.gateway.messages import Answered
from geminids.gemini.protocol.stderr import StderrNotice
from geminids.run.stall.snapshot import Failed, Situation, situation_of


def situation(**fields: Any) -> Situation:
    options = Options(**{"model": "flash", **fields.pop("options", {})})
    arguments: dict[str, Any] = {
        "tools": (),
        "gateway": None,
        "retried": None,
        "last_stdout_at": 0.0,
        **fields,
    }
    return situation_of(options, 1, **arguments)


def gateway(ago: float, **fields: Any) -> Any:
    """A stand-in for the gateway, with a request that failed `ago` seconds ago."""
    defaults: dict[str, Any] = {"number": 1, "at": 0, "model": "m", "served": None}
    defaults |= {"role": "main", "attempt": 1, "body": 7, "status": 500, "counts": None, "finish": None}
    defaults |= {
        "calls": 0,
        "thoughts": 0,
        "waited_ms": 0,
        "first_byte_ms": None,
        "duration_ms": 1,
        "whole": True,
        "repeat": False,
        "turn": 1,
    }
    values = {**defaults, **fields}
    return SimpleNamespace(failed=(Answered(**values), time.monotonic() - ago), in_flight=[])


@pytest.mark.parametrize(
    ("attempt", "wait", "left"), [(1, None, 5), (2, None, 10), (9, None, 30), (1, 12, 12)]
)
def test_the_time_of_the_next_attempt(attempt: int, wait: float | None, left: float) -> None:
    """The time of the next attempt is the one that was announced, or that of the CLI's own
    back-off."""
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
def test_failures_that_are_retried(ago: float, fields: dict[str, Any], awaited: bool) -> None:
    """A failed request is awaited unless it cannot be retried, was the last attempt, or its next
    attempt is overdue."""
    result = situation(gateway=gateway(ago, **fields))
    assert (result.failed is not None) is awaited


def test_a_retry_that_stderr_reports() -> None:
    """A retry that stderr announced is awaited until the CLI prints something or the announced time
    has passed."""
    now = time.monotonic()
    notice = StderrNotice("warning", "retry", "…", 3, 429, 12.0)
    assert situation(retried=(notice, now - 11)).failed == Failed(3, 429, now - 11, 12.0, is_exact=True)
    assert situation(retried=(notice, now - 11), last_stdout_at=now).failed is None
    late = situation(retried=(notice, now - 15))
    assert (late.failed, late.tried) == (None, 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 10),
        ({"model": "auto"}, None),
        ({"max_attempts": 4}, 4),
        ({"model": "auto", "max_attempts": 4}, None),
    ],
)
def test_the_number_of_attempts(options: dict[str, Any], expected: int | None) -> None:
    """The number of attempts is the CLI's default for a named model, or `max_attempts`; it is None
    for `auto`, unless the gateway makes `max_attempts` apply to the router too."""
    assert situation(options=options).attempts == expected
    if "max_attempts" in options:
        assert situation(options=options, gateway=gateway(1.0)).attempts == 4


def test_a_429_of_the_gateway_is_marked_as_held() -> None:
    """A 429 that the gateway itself sent for `requests_per_minute` is marked as held; a 429 of the
    API is not."""
    early = gateway(1.0, status=429, error="too early", retry_after=20.0, held=True)
    failed = situation(gateway=early).failed
    assert failed is not None and failed.held == "too early"
    other = situation(gateway=gateway(1.0, status=429, error="Quota", retry_after=20.0)).failed
    assert other is not None and other.held is None
