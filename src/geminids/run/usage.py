"""The tokens of a run, from the CLI's own sums."""

from __future__ import annotations

from geminids.events.model import ModelUsage, Usage
from geminids.wire.stream_json import ModelStats, Stats

__all__ = ["usage_of"]


def usage_of(stats: Stats | None) -> Usage | None:
    """`input_tokens` includes cached ones, `output_tokens` excludes thinking."""
    if stats is None or stats.total_tokens is None:
        return None
    return Usage(
        input=stats.input_tokens,
        cached=stats.cached,
        output=stats.output_tokens,
        thinking=_if_none(stats),
        tool=_if_none(stats),
        total=stats.total_tokens,
        models=tuple(
            ModelUsage(
                model=name,
                input=model.input_tokens,
                cached=model.cached,
                output=model.output_tokens,
                thinking=_if_none(model),
                tool=_if_none(model),
                total=model.total_tokens,
            )
            for name, model in stats.models.items()
        ),
    )


def _if_none(stats: Stats | ModelStats) -> int | None:
    """0 where nothing of the total is left for it; else the rest is thinking or tool prompts, and who knows which."""
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return 0 if stats.total_tokens <= stats.input_tokens + stats.output_tokens else None
