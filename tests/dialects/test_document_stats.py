"""The `stats` in the documents of Untether and Leadmetrics, in each format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from geminids import Cost, Finished, Usage
from geminids.dialects.dialect import encode_run
from geminids.dialects.otel.attributes import finished_attributes
from geminids.events.model import Event
from geminids.run.recordings.stream_json import events_of_stream

UNTETHER = {"input_tokens": 100, "output_tokens": 50, "total_cost_usd": 0.0025}
LEADMETRICS = {"input_tokens": 100, "output_tokens": 10, "cached": 20, "duration_ms": 3000}
EMPTY: dict[str, Any] = {}

# The keys of input, output and cached tokens in each format, from the last line or the document.
KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "adapter": (("usage", "inputTokens"), ("usage", "outputTokens"), ("usage", "cachedInputTokens")),
    "agent-events": (
        ("payload", "usage", "tokens", "totals", "input", "total"),
        ("payload", "usage", "tokens", "totals", "output", "total"),
        ("payload", "usage", "tokens", "totals", "input", "cacheRead"),
    ),
    "atif": (
        ("final_metrics", "total_prompt_tokens"),
        ("final_metrics", "total_completion_tokens"),
        ("final_metrics", "total_cached_tokens"),
    ),
    "claude": (("usage", "input_tokens"), ("usage", "output_tokens"), ("usage", "cache_read_input_tokens")),
    "untether": (
        ("usage", "usage", "input_tokens"),
        ("usage", "usage", "output_tokens"),
        ("usage", "usage", "cache_read_tokens"),
    ),
}


def _events(stats: object) -> list[Event]:
    lines = [
        {"type": "init", "session_id": "abc123def", "model": "gemini-2.0-flash-exp"},
        {"type": "message", "role": "assistant", "content": "Done."},
        {"type": "result", "status": "success", "stats": stats},
    ]
    block = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return [event for batch in events_of_stream([block]) for event in batch]


def _finished(stats: object) -> Finished:
    *_, last = _events(stats)
    assert isinstance(last, Finished)
    return last


def _value(line: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        line = line.get(key) if isinstance(line, Mapping) else None
    return line


def test_the_events_have_the_counts_of_the_document() -> None:
    """A `result` without a total gives the counts that it has. All others stay None. A cost in the
    stream is the cost of the run."""
    finished = _finished(UNTETHER)
    assert finished.usage == Usage(input=100, output=50)
    assert finished.cost == Cost(usd=Decimal("0.0025"), basis="estimate")
    finished = _finished(LEADMETRICS)
    assert finished.usage == Usage(input=100, output=10, cached=20)
    assert (finished.cost, finished.duration_ms) == (None, 3000)


@pytest.mark.parametrize("stats", [EMPTY, None, {"duration_ms": 5}, {"input_tokens": "100"}])
def test_without_a_count_there_is_no_usage(stats: object) -> None:
    """Stats that are empty, missing or without a count give no usage, not zeros."""
    assert _finished(stats).usage is None
    for name, keys in KEYS.items():
        line = json.loads(b"".join(encode_run(name, _events(stats))).splitlines()[-1])
        assert [_value(line, key) for key in keys] == [None, None, None]


@pytest.mark.parametrize(("name", "keys"), KEYS.items())
def test_each_format_has_the_counts_of_the_document(name: str, keys: tuple[tuple[str, ...], ...]) -> None:
    """The tokens of both documents are in each format. Claude's input excludes cached tokens, so it
    is unknown if they are."""
    line = json.loads(b"".join(encode_run(name, _events(UNTETHER))).splitlines()[-1])
    assert [_value(line, key) for key in keys] == [None if name == "claude" else 100, 50, None]
    line = json.loads(b"".join(encode_run(name, _events(LEADMETRICS))).splitlines()[-1])
    assert [_value(line, key) for key in keys] == [80 if name == "claude" else 100, 10, 20]


def test_spans_have_the_counts_of_the_document() -> None:
    """The span of a run has the tokens of both documents."""
    for stats, output in ((UNTETHER, 50), (LEADMETRICS, 10)):
        attributes = finished_attributes(_finished(stats), content=False)
        assert attributes["gen_ai.usage.input_tokens"] == 100
        assert attributes["gen_ai.usage.output_tokens"] == output
