"""The tokens of a run: the sum of its requests, or the CLI's own totals."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminids import TokensUsed
from geminids.events.model import Usage
from geminids.gemini.protocol.stream_json import ModelStats, Stats
from geminids.run.accounting.cost import sum_of, usage_of_requests, usage_of_stats

KINDS = ("input", "cached", "output", "thinking", "tool")


def used(model: str | None = "m", role: Any = "main", **counts: int | None) -> TokensUsed:
    known: dict[str, int | None] = dict.fromkeys(KINDS, 0)
    fields: dict[str, Any] = {**known, **counts}
    return TokensUsed(at=0, seq=0, attempt=1, turn=1, model=model, role=role, **fields)


NOTHING: dict[str, Any] = dict.fromkeys(KINDS)
UNKNOWN = used(**NOTHING)


def test_it_is_the_sum() -> None:
    """Of every kind, for all and for each model; cached tokens are part of the input."""
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
    assert [(one.model, one.input, one.total) for one in usage.models] == [("a", 11, 17), ("b", 5, 6)]


def test_unknown_tokens_are_counted_as_such() -> None:
    """They are in no sum, and never taken for 0 in silence."""
    usage = usage_of_requests([used(input=10), UNKNOWN])
    assert usage is not None
    assert (usage.input, usage.requests, usage.unknown) == (10, 2, 1)


def test_no_request_is_no_usage() -> None:
    """None, not zeros."""
    assert usage_of_requests([]) is None
    assert usage_of_stats(None) is None
    assert usage_of_stats(Stats()) is None
    assert sum_of([None, None]) is None


def test_the_totals_of_the_cli() -> None:
    """What the total has over input and output is thinking or tool tokens, and nobody knows which."""
    model = ModelStats(total_tokens=15, input_tokens=10, output_tokens=5, cached=4)
    usage = usage_of_stats(
        Stats(total_tokens=18, input_tokens=10, output_tokens=5, cached=4, models={"m": model})
    )
    assert usage is not None
    assert (usage.thinking, usage.tool, usage.total, usage.requests) == (None, None, 18, None)
    assert (usage.models[0].thinking, usage.models[0].tool) == (0, 0)


def test_attempts_add_up() -> None:
    """An attempt that never reached the model adds nothing; what one does not know, the sum does not know."""
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
def test_the_models_add_up_to_the_whole(requests: list[TokensUsed]) -> None:
    """Whatever the requests."""
    usage = usage_of_requests(requests)
    assert usage is not None
    assert (
        usage.input == sum(one.input or 0 for one in requests) == sum(one.input or 0 for one in usage.models)
    )
    assert usage.requests == len(requests)
