"""The tokens of a run, from the CLI's own sums."""

from __future__ import annotations

from geminids.events.model import ModelUsage, Usage
from geminids.wire.stream_json import ModelStats, Stats

__all__ = ["usage_of"]


def usage_of(stats: Stats | None) -> Usage | None:
    """`input_tokens` includes cached ones, `output_tokens` excludes thinking: what is left of the total is that."""
    if stats is None or stats.total_tokens is None:
        return None
    return Usage(
        input=stats.input_tokens,
        cached=stats.cached,
        output=stats.output_tokens,
        thinking=_thinking(stats),
        total=stats.total_tokens,
        models=tuple(
            ModelUsage(
                model=name,
                input=model.input_tokens,
                cached=model.cached,
                output=model.output_tokens,
                thinking=_thinking(model),
                total=model.total_tokens,
            )
            for name, model in stats.models.items()
        ),
    )


def _thinking(stats: Stats | ModelStats) -> int | None:
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return max(0, stats.total_tokens - stats.input_tokens - stats.output_tokens)
