"""Tokens as Claude counts them: cached ones apart from the input, thinking within the output."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from geminids.dialects.claude.model import ModelTokens, Usage
from geminids.events.model import Finished, ModelUsage, TokensUsed
from geminids.events.model import Usage as RunUsage

__all__ = ["cost_of_run", "models_of", "stop_reason_of", "usage_of", "usage_of_run"]

_Counts = TokensUsed | RunUsage | ModelUsage
_UNKNOWN = Usage()
# The API's reasons that Claude has a word for. The filters of the API refuse an answer, as Claude's refusals do.
_STOP_REASONS = {
    "stop": "end_turn",
    "max_tokens": "max_tokens",
    **dict.fromkeys(
        ("safety", "prohibited_content", "blocklist", "spii", "recitation", "language", "image_safety"),
        "refusal",
    ),
}


def stop_reason_of(finish_reason: str | None) -> str | None:
    """Claude's `stop_reason` for a finish reason of the API, in any case; None if it has none.

    >>> stop_reason_of("MAX_TOKENS"), stop_reason_of("safety"), stop_reason_of("OTHER"), stop_reason_of(None)
    ('max_tokens', 'refusal', None, None)
    """
    return _STOP_REASONS.get((finish_reason or "").lower())


def usage_of(requests: Sequence[TokensUsed]) -> Usage:
    """The tokens of the requests that one message took; nothing is said where none is known."""
    if not requests:
        return _UNKNOWN
    return _usage(requests[0]) if len(requests) == 1 else _sum([_usage(one) for one in requests])


def usage_of_run(finished: Finished | None) -> Usage | UnsetType:
    """Those of the whole run, subagents and the CLI's own requests included; left out if a request is not in them."""
    if finished is None or finished.usage is None or finished.usage.unknown:
        return UNSET
    return _usage(finished.usage)


def cost_of_run(finished: Finished | None) -> float | UnsetType:
    """What is paid for it; what an account or Vertex bills is not known."""
    usd = finished.cost.usd if finished is not None and finished.cost is not None else None
    return UNSET if usd is None else float(usd)


def models_of(finished: Finished | None) -> dict[str, ModelTokens] | UnsetType:
    """Those of each model, without models that have requests with unknown tokens."""
    if finished is None or finished.usage is None:
        return UNSET
    paid = {one.model: one.usd for one in finished.cost.models} if finished.cost is not None else {}
    return {
        one.model: ModelTokens(
            _fresh(one),
            _written(one),
            one.cached,
            cost=None if (usd := paid.get(one.model)) is None else float(usd),
        )
        for one in finished.usage.models
        if not one.unknown
    }


def _usage(counts: _Counts) -> Usage:
    return Usage(
        _or_unset(_fresh(counts)),
        0,  # Gemini's caches are filled unasked, and at no price: there is nothing to create
        _or_unset(counts.cached),
        _or_unset(_written(counts)),
    )


def _fresh(counts: _Counts) -> int | None:
    if counts.input is None or counts.cached is None:
        return None
    return max(counts.input - counts.cached, 0)


def _written(counts: _Counts) -> int | None:
    if counts.output is None or counts.thinking is None:
        return None
    return counts.output + counts.thinking


def _or_unset(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count


def _sum(told: list[Usage]) -> Usage:
    return Usage(*(_added([getattr(one, name) for one in told]) for name in Usage.__struct_fields__))


def _added(counts: list[int | UnsetType]) -> int | UnsetType:
    known = [count for count in counts if not isinstance(count, UnsetType)]
    return sum(known) if len(known) == len(counts) else UNSET
