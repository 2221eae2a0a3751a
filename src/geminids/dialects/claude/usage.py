"""Convert token counts to Claude's format: input excludes cached tokens, and output includes
thinking."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from geminids.dialects.claude.model import ClaudeModelUsage, Usage
from geminids.events.cost import with_reported_totals
from geminids.events.model import Finished, ModelUsage, TokensUsed
from geminids.events.model import Usage as RunUsage

__all__ = ["cost_of_run", "models_of", "stop_reason_of", "usage_of", "usage_of_run"]

_Counts = TokensUsed | RunUsage | ModelUsage
_UNKNOWN = Usage()
# Claude's names for finish reasons of the Gemini API. All reasons of content filters become
# `refusal`.
_STOP_REASONS = {
    "stop": "end_turn",
    "max_tokens": "max_tokens",
    **dict.fromkeys(
        ("safety", "prohibited_content", "blocklist", "spii", "recitation", "language", "image_safety"),
        "refusal",
    ),
}


def stop_reason_of(finish_reason: str | None) -> str | None:
    """Return Claude's `stop_reason` for a finish reason of the Gemini API; None if Claude has no
    equivalent.

    The finish reason can be in upper or lower case.

    >>> stop_reason_of("MAX_TOKENS"), stop_reason_of("safety"), stop_reason_of("OTHER"), stop_reason_of(None)
    ('max_tokens', 'refusal', None, None)
    """
    return _STOP_REASONS.get((finish_reason or "").lower())


def usage_of(requests: Sequence[TokensUsed]) -> Usage:
    """Return the token counts of a message: the sums over its requests. A sum is unknown if one of
    its counts is unknown. All sums are unknown if `requests` is empty."""
    if not requests:
        return _UNKNOWN
    return _usage(requests[0]) if len(requests) == 1 else _sum([_usage(request) for request in requests])


def usage_of_run(finished: Finished | None) -> Usage | UnsetType:
    """Return the token counts of a run, including the requests of subagents and the CLI's own
    requests.

    Return UNSET if the counts of the run, or of one of its requests, are unknown. The field is then
    omitted from the JSON.
    """
    if finished is None or finished.usage is None or finished.usage.unknown:
        return UNSET
    return _usage(with_reported_totals(finished.usage))


def cost_of_run(finished: Finished | None) -> float | UnsetType:
    """Return the cost of the run in USD; UNSET if the cost is unknown, for example because the run
    used a Google account or Vertex AI."""
    usd = finished.cost.usd if finished is not None and finished.cost is not None else None
    return UNSET if usd is None else float(usd)


def models_of(finished: Finished | None) -> dict[str, ClaudeModelUsage] | UnsetType:
    """Return the token counts and the cost of each model in a run; UNSET if the run reported no
    token counts. A model is omitted if the token counts of at least one of its requests are
    unknown."""
    if finished is None or finished.usage is None:
        return UNSET
    paid = {cost.model: cost.usd for cost in finished.cost.models} if finished.cost is not None else {}
    return {
        usage.model: ClaudeModelUsage(
            _uncached_input(usage),
            _output(usage),
            usage.cached,
            cost=None if (usd := paid.get(usage.model)) is None else float(usd),
        )
        for usage in finished.usage.models
        if not usage.unknown
    }


def _usage(counts: _Counts) -> Usage:
    return Usage(
        _or_unset(_uncached_input(counts)),
        0,  # cache_creation: Gemini fills its caches automatically and free of charge
        _or_unset(counts.cached),
        _or_unset(_output(counts)),
    )


def _uncached_input(counts: _Counts) -> int | None:
    if counts.input is None or counts.cached is None:
        return None
    return max(counts.input - counts.cached, 0)


def _output(counts: _Counts) -> int | None:
    if counts.output is None or counts.thinking is None:
        return None
    return counts.output + counts.thinking


def _or_unset(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count


def _sum(usages: list[Usage]) -> Usage:
    return Usage(*(_added([getattr(usage, name) for usage in usages]) for name in Usage.__struct_fields__))


def _added(counts: list[int | UnsetType]) -> int | UnsetType:
    known = [count for count in counts if not isinstance(count, UnsetType)]
    return sum(known) if len(known) == len(counts) else UNSET
