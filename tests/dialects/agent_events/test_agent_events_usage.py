"""Token counts in SubLang's format, with their coverage: numbers are correct or left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from geminids.dialects.agent_events.usage import Input, Output, TokenCounts, tokens_of
from geminids.events.model import Finished, ModelUsage, TokensUsed, Usage
from random_events import valid_runs


def _request(**fields: Any) -> TokensUsed:
    counts: dict[str, Any] = {"input": 100, "cached": 40, "output": 20, "thinking": 10, "tool": 5}
    defaults: dict[str, Any] = {"model": "m", "role": "main"}
    return TokensUsed(at=1, seq=1, attempt=1, turn=1, **{**defaults, **counts, **fields})


def _finished(usage: Usage | None, **fields: Any) -> Finished:
    defaults: dict[str, Any] = {
        "outcome": "success",
        "failure": None,
        "reason": None,
        "text": "",
        "answer": "",
        "session_id": "s",
        "clear_session": False,
        "attempts": 1,
        "exit_code": 0,
        "duration_ms": 1,
        "ended": (),
        "complete": True,
    }
    return Finished(at=1, seq=1, attempt=1, turn=1, run_id="r", usage=usage, **{**defaults, **fields})


TOTALS = Usage(input=100, cached=40, output=20, thinking=10, tool=5, total=135, requests=1)


def test_a_request_becomes_a_record() -> None:
    """A record has input = prompt + tool, uncached = prompt - cached + tool, and output =
    candidates + thoughts."""
    tokens = tokens_of(_finished(TOTALS), [_request()])
    assert tokens is not None
    assert tokens.coverage == "complete"
    assert tokens.totals == TokenCounts(Input(105, 65, 40), Output(30, 20, 10))
    [record] = tokens.records
    assert (record.model, record.provider, record.requests, record.tokens) == ("m", None, 1, tokens.totals)


@pytest.mark.parametrize(
    ("finished", "options"),
    [
        (_finished(None), {}),
        (_finished(TOTALS), {"failed_request": True}),
        (_finished(Usage(input=100, output=20)), {}),
    ],
)
def test_partial_coverage(finished: Finished, options: dict[str, bool]) -> None:
    """The coverage is `partial` if the gateway did not count the requests, or if a request
    failed."""
    tokens = tokens_of(finished, [_request()], **options)
    assert tokens is not None
    assert (tokens.coverage, tokens.totals.input.total) == ("partial", 105)


@pytest.mark.parametrize("fields", [{"outcome": "timed_out"}, {"attempts": 2}])
def test_complete_coverage(fields: dict[str, Any]) -> None:
    """The coverage is `complete` if the gateway counted the requests, also for a run that timed out
    or was retried."""
    tokens = tokens_of(_finished(TOTALS, **fields), [_request()])
    assert tokens is not None and tokens.coverage == "complete"


def test_a_request_that_failed_has_no_record() -> None:
    """A failed request has no record, because a record stands for a response."""
    failed = _request(input=0, cached=0, output=0, thinking=0, tool=0, status=503)
    tokens = tokens_of(_finished(TOTALS), [failed, _request(status=200)], failed_request=True)
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)


def test_totals_that_disagree() -> None:
    """If the requests contradict the totals of the run, no tokens are reported."""
    assert tokens_of(_finished(Usage(input=99, output=20)), [_request()]) is None


def test_a_request_with_an_unknown_part() -> None:
    """A request with an unknown count is left out, and the coverage is `partial`. If no other
    request is left, no tokens are reported."""
    unknown = _request(thinking=None)
    tokens = tokens_of(_finished(None), [_request(), unknown])
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)
    assert tokens_of(_finished(None), [unknown]) is None
    assert tokens_of(_finished(None), []) is None


@pytest.mark.parametrize("counts", [{"input": -1}, {"output": 2**53}, {"tool": 2**53 - 50}])
def test_invalid_counts(counts: dict[str, int]) -> None:
    """A request with a negative count, or a count that JSON readers would round, is left out."""
    assert tokens_of(_finished(None), [_request(**counts)]) is None


def test_totals_that_are_too_large() -> None:
    """If JSON readers would round the totals, no tokens are reported."""
    half = _request(input=2**52, tool=0, cached=0)
    assert tokens_of(_finished(None), [half, half]) is None


@pytest.mark.parametrize("cached", [None, 101])
def test_an_impossible_detail(cached: int | None) -> None:
    """If the cached count is unknown or larger than the input, the totals have no cached count. The
    total input stays."""
    tokens = tokens_of(_finished(None), [_request(), _request(cached=cached)])
    assert tokens is not None
    assert tokens.totals.input == Input(210)


def test_a_request_with_unknown_tokens() -> None:
    """A request with unknown tokens has no record, and the coverage is `partial`. Totals of a model
    that lack a request give no record either."""
    unknown = _request(input=None, cached=None, output=None, thinking=None, tool=None, status=200)
    usage = Usage(input=100, output=20, requests=2, unknown=1)
    tokens = tokens_of(_finished(usage), [_request(), unknown])
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)
    sums = ModelUsage(model="m", input=1, cached=0, output=2, thinking=0, tool=0, total=3, unknown=1)
    assert tokens_of(_finished(Usage(input=1, output=2, models=(sums,))), []) is None


def test_totals_without_requests() -> None:
    """Without single requests, each model has one record, if all its counts are known."""
    known = ModelUsage(model="m", input=1, cached=0, output=2, thinking=0, tool=0, total=3)
    tokens = tokens_of(_finished(Usage(input=1, output=2, models=(known,))), [])
    assert tokens is not None
    assert (tokens.coverage, tokens.records[0].requests) == ("partial", None)
    unknown = ModelUsage(model="m", input=1, output=2)
    assert tokens_of(_finished(Usage(input=1, output=2, models=(unknown,))), []) is None


def test_zeros_of_a_request_that_failed() -> None:
    """If the only request failed, its zeros are not reported, because nothing was measured."""
    zero = ModelUsage(model="m", input=0, cached=0, output=0, thinking=0, tool=0, total=0)
    assert tokens_of(_finished(Usage(input=0, output=0, models=(zero,))), [], failed_request=True) is None


@given(events=valid_runs())
def test_records_add_up(events: list[Any]) -> None:
    """The records add up to the totals, and the details of input and output add up to their
    total."""
    requests = [event for event in events if isinstance(event, TokensUsed)]
    tokens = tokens_of(events[-1], requests)
    if tokens is None:
        return
    totals = tokens.totals
    assert totals.input.total == sum(record.tokens.input.total for record in tokens.records)
    assert totals.output.total == sum(record.tokens.output.total for record in tokens.records)
    assert totals.output.total == (totals.output.visible or 0) + (totals.output.reasoning or 0)
    if totals.input.cache_read is not None:
        assert totals.input.total == (totals.input.uncached or 0) + totals.input.cache_read
