"""The tokens of a run, from the CLI's own sums."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from geminids.events.model import ModelUsage, TokensUsed, Usage
from geminids.wire.stream_json import ModelStats, Stats

__all__ = ["by_request", "usage_of"]


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


def by_request(usage: Usage | None, requests: Sequence[TokensUsed]) -> Usage | None:
    """The same usage with what single requests tell besides: how many there were, and what was thinking.

    Only where they add up to the CLI's own sums: a request that is missing would make all of it wrong.
    """
    if usage is None or not requests:
        return usage
    sums = _sums(requests)
    if (sums.input, sums.output) != (usage.input, usage.output):
        return usage
    models = tuple(
        msgspec.structs.replace(model, thinking=own.thinking, tool=own.tool)
        if (own := _sums([one for one in requests if one.model == model.model])).input == model.input
        else model
        for model in usage.models
    )
    return msgspec.structs.replace(
        usage, thinking=sums.thinking, tool=sums.tool, requests=len(requests), models=models
    )


def _sums(requests: Sequence[TokensUsed]) -> Usage:
    def total(name: str) -> int | None:
        counts = [getattr(request, name) for request in requests]
        return None if None in counts else sum(counts)

    return Usage(input=total("input"), output=total("output"), thinking=total("thinking"), tool=total("tool"))


def _if_none(stats: Stats | ModelStats) -> int | None:
    """0 where nothing of the total is left for it; else the rest is thinking or tool prompts, and who knows which."""
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return 0 if stats.total_tokens <= stats.input_tokens + stats.output_tokens else None
