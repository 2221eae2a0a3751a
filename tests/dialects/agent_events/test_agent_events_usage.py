"""Tokens with coverage: true numbers, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from geminids.dialects.agent_events.usage import Input, Output, TokenUsage, tokens_of
from geminids.events.model import Finished, ModelUsage, TokensUsed, Usage
from random_events import lawful_runs


def _request(**fields: Any) -> TokensUsed:
    given: dict[str, Any] = {"input": 100, "cached": 40, "output": 20, "thinking": 10, "tool": 5}
    named: dict[str, Any] = {"model": "m", "role": "main"}
    return TokensUsed(at=1, seq=1, attempt=1, turn=1, **{**named, **given, **fields})


def _finished(usage: Usage | None, **fields: Any) -> Finished:
    given: dict[str, Any] = {
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
    return Finished(at=1, seq=1, attempt=1, turn=1, run_id="r", usage=usage, **{**given, **fields})


SUMS = Usage(input=100, cached=40, output=20, thinking=10, tool=5, total=135, requests=1)


def test_a_request_becomes_a_record() -> None:
    """input = prompt + tool, uncached = prompt - cached + tool, output = candidates + thoughts."""
    tokens = tokens_of(_finished(SUMS), [_request()])
    assert tokens is not None
    assert tokens.coverage == "complete"
    assert tokens.totals == TokenUsage(Input(105, 65, 40), Output(30, 20, 10))
    [record] = tokens.records
    assert (record.model, record.provider, record.requests, record.tokens) == ("m", None, 1, tokens.totals)


@pytest.mark.parametrize(
    ("finished", "how"),
    [
        (_finished(None), {}),
        (_finished(SUMS), {"failed_request": True}),
        (_finished(Usage(input=100, output=20)), {}),
    ],
)
def test_partial(finished: Finished, how: dict[str, bool]) -> None:
    """A request may be missing if the gateway did not count them, and one that failed makes the format say so."""
    tokens = tokens_of(finished, [_request()], **how)
    assert tokens is not None
    assert (tokens.coverage, tokens.totals.input.total) == ("partial", 105)


@pytest.mark.parametrize("fields", [{"outcome": "timed_out"}, {"attempts": 2}])
def test_complete_however_it_ended(fields: dict[str, Any]) -> None:
    """The gateway has counted each request, also of a run that was stopped or tried again."""
    tokens = tokens_of(_finished(SUMS, **fields), [_request()])
    assert tokens is not None and tokens.coverage == "complete"


def test_a_request_that_failed_has_no_record() -> None:
    """A record stands for a response."""
    failed = _request(input=0, cached=0, output=0, thinking=0, tool=0, status=503)
    tokens = tokens_of(_finished(SUMS), [failed, _request(status=200)], failed_request=True)
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)


def test_sums_that_disagree() -> None:
    """One of the two is wrong: then nothing is said."""
    assert tokens_of(_finished(Usage(input=99, output=20)), [_request()]) is None


def test_a_request_that_is_not_known_whole() -> None:
    """It is left out, and the coverage is partial; with no other there are no tokens at all."""
    unknown = _request(thinking=None)
    tokens = tokens_of(_finished(None), [_request(), unknown])
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)
    assert tokens_of(_finished(None), [unknown]) is None
    assert tokens_of(_finished(None), []) is None


@pytest.mark.parametrize("odd", [{"input": -1}, {"output": 2**53}, {"tool": 2**53 - 50}])
def test_what_is_no_count(odd: dict[str, int]) -> None:
    """Negative numbers, and those that JSON's readers would round, are not told."""
    assert tokens_of(_finished(None), [_request(**odd)]) is None


def test_sums_that_grow_too_large() -> None:
    """The same for the totals."""
    half = _request(input=2**52, tool=0, cached=0)
    assert tokens_of(_finished(None), [half, half]) is None


@pytest.mark.parametrize("cached", [None, 101])
def test_a_detail_that_cannot_be(cached: int | None) -> None:
    """It is left out, in the totals too; the total itself stays."""
    tokens = tokens_of(_finished(None), [_request(), _request(cached=cached)])
    assert tokens is not None
    assert tokens.totals.input == Input(210)


def test_a_request_with_unknown_tokens() -> None:
    """It has no record, and the coverage is partial; the sums of its model are no record either."""
    unknown = _request(input=None, cached=None, output=None, thinking=None, tool=None, status=200)
    usage = Usage(input=100, output=20, requests=2, unknown=1)
    tokens = tokens_of(_finished(usage), [_request(), unknown])
    assert tokens is not None
    assert (tokens.coverage, len(tokens.records)) == ("partial", 1)
    sums = ModelUsage(model="m", input=1, cached=0, output=2, thinking=0, tool=0, total=3, unknown=1)
    assert tokens_of(_finished(Usage(input=1, output=2, models=(sums,))), []) is None


def test_sums_alone() -> None:
    """Without single requests, a record for each model, where its parts are known."""
    known = ModelUsage(model="m", input=1, cached=0, output=2, thinking=0, tool=0, total=3)
    tokens = tokens_of(_finished(Usage(input=1, output=2, models=(known,))), [])
    assert tokens is not None
    assert (tokens.coverage, tokens.records[0].requests) == ("partial", None)
    unknown = ModelUsage(model="m", input=1, output=2)
    assert tokens_of(_finished(Usage(input=1, output=2, models=(unknown,))), []) is None


def test_zeros_of_a_request_that_failed() -> None:
    """Nothing was answered, so nothing was measured."""
    zero = ModelUsage(model="m", input=0, cached=0, output=0, thinking=0, tool=0, total=0)
    assert tokens_of(_finished(Usage(input=0, output=0, models=(zero,))), [], failed_request=True) is None


@given(events=lawful_runs())
def test_records_add_up(events: list[Any]) -> None:
    """Member by member, whatever was counted; where all details of a side are there, they are its total."""
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
