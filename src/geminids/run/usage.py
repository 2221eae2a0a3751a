"""The tokens of a run: the sum of its requests, or, without the gateway, the CLI's own totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geminids.events.model import ModelUsage, TokensUsed, Usage
from geminids.wire.stream_json import ModelStats, Stats

__all__ = ["sum_of", "usage_of_requests", "usage_of_stats"]

_KINDS = ("input", "cached", "output", "thinking", "tool")


def usage_of_requests(requests: Sequence[TokensUsed]) -> Usage | None:
    """The sum of these requests; None if there are none."""
    if not requests:
        return None
    # A model that only refused requests has served nothing.
    names = dict.fromkeys(
        request.model for request in requests if request.model and not request.is_http_error
    )
    return Usage(
        **_totals(requests),
        requests=len(requests),
        models=tuple(
            ModelUsage(model=name, **_totals([request for request in requests if request.model == name]))
            for name in names
        ),
    )


def _totals(requests: Sequence[TokensUsed]) -> dict[str, Any]:
    known = [request for request in requests if request.input is not None]
    totals = {kind: _sum([getattr(request, kind) for request in known]) for kind in _KINDS}
    total = _sum([totals[kind] for kind in _KINDS if kind != "cached"])
    return {**totals, "total": total, "unknown": len(requests) - len(known)}


def usage_of_stats(stats: Stats | None) -> Usage | None:
    """The CLI's own totals: `input_tokens` includes cached ones, `output_tokens` excludes thinking."""
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


def sum_of(usages: Sequence[Usage | None]) -> Usage | None:
    """The tokens of several attempts. An attempt without usage never reached the model."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    names = (*_KINDS, "total")
    models: dict[str, list[ModelUsage]] = {}
    for usage in known:
        for model in usage.models:
            models.setdefault(model.model, []).append(model)
    return Usage(
        **{name: _sum([getattr(usage, name) for usage in known]) for name in (*names, "requests")},
        unknown=sum(usage.unknown for usage in known),
        models=tuple(
            ModelUsage(
                model=name,
                **{kind: _sum([getattr(one, kind) for one in same]) for kind in names},
                unknown=sum(one.unknown for one in same),
            )
            for name, same in models.items()
        ),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _if_none(stats: Stats | ModelStats) -> int | None:
    """0 if total = input + output; otherwise None, because the rest may be thinking or tool tokens."""
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return 0 if stats.total_tokens <= stats.input_tokens + stats.output_tokens else None
