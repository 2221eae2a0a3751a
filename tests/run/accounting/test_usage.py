"""Tests of the usage of a run: the sum of its requests, or the CLI's own totals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids import TokensUsed
from geminids.events.model import Usage
from geminids.gemini.protocol.stream_json import ModelStats, ProcessStats
from geminids.run.accounting.cost import sum_of, usage_of_requests, usage_of_stats

KINDS = ("input", "cached", "output", "thinking", "tool")


def used(model: str | None = "m", role: Any = "main", **counts: int | None) -> TokensUsed:
    known: dict[str, int | None] = dict.fromkeys(KINDS, 0)
    fields: dict[str, Any] = {**known, **counts}
    return TokensUsed(at=0, seq=0, attempt=1, turn=1, model=model, role=role, **fields)


ALL_UNKNOWN: dict[str, Any] = dict.fromkeys(KINDS)
UNKNOWN = used(**ALL_UNKNOWN)


def test_usage_is_the_sum_of_the_requests() -> None:
    """Usage is the sum by kind and by model; input includes cached tokens."""
    usage = usage_of_requests(
        [
            used("a", input=10, cached=4, output=3, thinking=2, tool=1),
            used("b", "router", input=5, output=1),
            used("a", "subagent", input=1),
        ]
    )
    assert usage is not None
    assert [getattr(usage, kind) for kind in KINDS] == [16, 4, 4, 2, 1]
    assert (usage.total, usage.requests, usage.unknown) == (23, 3, 0)
    assert [(model.model, model.input, model.total) for model in usage.models] == [("a", 11, 17), ("b", 5, 6)]


def test_unknown_tokens_are_counted_as_such() -> None:
    """Requests with unknown tokens are counted, but are in no sum."""
    usage = usage_of_requests([used(input=10), UNKNOWN])
    assert usage is not None
    assert (usage.input, usage.requests, usage.unknown) == (10, 2, 1)


def test_no_request_is_no_usage() -> None:
    """Without a request the usage is None, not zeros."""
    assert usage_of_requests([]) is None
    assert usage_of_stats(None) is None
    assert usage_of_stats(ProcessStats()) is None
    assert sum_of([None, None]) is None


def test_the_totals_of_the_cli() -> None:
    """If the CLI's total exceeds input plus output, thinking and tool tokens are None, because the
    total does not say which they are."""
    model = ModelStats(total_tokens=15, input_tokens=10, output_tokens=5, cached=4)
    usage = usage_of_stats(
        ProcessStats(total_tokens=18, input_tokens=10, output_tokens=5, cached=4, models={"m": model})
    )
    assert usage is not None
    assert (usage.thinking, usage.tool, usage.total, usage.requests) == (None, None, 18, None)
    assert (usage.models[0].thinking, usage.models[0].tool) == (0, 0)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (ProcessStats(input_tokens=100, output_tokens=50), (100, None, 50, None, None)),
        (ProcessStats(input_tokens=100, output_tokens=10, cached=20), (100, 20, 10, None, None)),
        (ProcessStats(input_tokens=0), (0, None, None, None, None)),
        (ProcessStats(duration_ms=5), None),
    ],
)
def test_totals_without_a_sum(stats: ProcessStats, expected: Any) -> None:
    """Each count that the stats contain is in the usage, also without `total_tokens`. Counts that
    they do not contain are None. Without any count there is no usage."""
    usage = usage_of_stats(stats)
    counts = usage and (usage.input, usage.cached, usage.output, usage.thinking, usage.total)
    assert counts == expected


def test_the_usage_of_attempts_is_added() -> None:
    """Attempts without usage add nothing to the sum.

    A count that one attempt does not know is None in the sum.
    """
    first = usage_of_requests([used(input=10), UNKNOWN])
    second = usage_of_requests([used("b", input=5)])
    both = sum_of([first, None, second])
    assert both is not None
    assert (both.input, both.requests, both.unknown, len(both.models)) == (15, 3, 1, 2)
    without = sum_of([first, Usage(input=1, requests=None)])
    assert without is not None
    assert (without.input, without.requests) == (11, None)


_counts = st.one_of(st.none(), st.integers(0, 10**6))


@given(
    st.lists(
        st.builds(lambda model, count: used(model, input=count), st.sampled_from("abc"), _counts), min_size=1
    )
)
def test_the_models_add_up_to_the_total(requests: list[TokensUsed]) -> None:
    """For any requests, the sum over the models equals the sum over the requests."""
    usage = usage_of_requests(requests)
    assert usage is not None
    assert (
        usage.input
        == sum(part.input or 0 for part in requests)
        == sum(part.input or 0 for part in usage.models)
    )
    assert usage.requests == len(requests)
