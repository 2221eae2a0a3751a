"""Tokens of a run for SubLang's `done`: exact counts, and whether they include every request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from geminids.events.model import Finished, ModelUsage, TokensUsed, Usage

__all__ = ["AgentUsage", "Input", "Money", "Output", "Record", "TokenUsage", "Tokens", "cost_of", "tokens_of"]

_MOST = 2**53 - 1  # the largest integer that JavaScript's JSON reader keeps exactly


class Input(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Input tokens. `total` includes cached tokens."""

    total: int
    uncached: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class Output(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Output tokens. `total` includes thinking."""

    total: int
    visible: int | None = None
    reasoning: int | None = None


class TokenUsage(msgspec.Struct, frozen=True):
    """Input and output tokens."""

    input: Input
    output: Output


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one request, or of all requests of a model if single ones are not known."""

    model: str | None = None
    provider: str | None = None
    requests: int | None = None
    tokens: TokenUsage


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens of a run.

    `complete` includes every request; `partial` has exact numbers, but a request may be missing.
    """

    coverage: str
    totals: TokenUsage
    records: tuple[Record, ...] = ()


class Money(msgspec.Struct, frozen=True):
    """The cost of a run; `agent-estimate`: computed from known prices, not from a bill."""

    amount: float
    currency: str = "USD"
    source: str = "agent-estimate"


class AgentUsage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The usage of a run: distinct tool calls, and tokens and cost if they are known."""

    tool_uses: int
    tokens: Tokens | None = None
    cost: Money | None = None


def cost_of(finished: Finished) -> Money | None:
    """The cost of a run, if it is known."""
    usd = finished.cost.usd if finished.cost is not None else None
    return None if usd is None else Money(float(usd))


def tokens_of(
    finished: Finished, requests: Sequence[TokensUsed], *, failed_request: bool = False
) -> Tokens | None:
    """The tokens of a run, one record per response; None if no request has a reliable count.

    `failed_request`: the API refused a request during the run. The format calls such a run
    `partial`.
    """
    usage = finished.usage
    answered = [request for request in requests if not request.is_http_error]
    if usage is not None and answered and finished.attempts == 1 and _disagree(usage, answered):
        return None
    counts: Sequence[TokensUsed | ModelUsage] = answered or _by_model(usage)
    records = tuple(record for count in counts if (record := _record(count)) is not None)
    if not records:
        return None
    totals = _summed([record.tokens for record in records])
    if totals is None or (failed_request and totals.input.total == totals.output.total == 0):
        return None  # no request was answered, so the zeros are not measurements
    # Only the gateway counts requests, so only its sums prove that none is missing.
    counted = usage is not None and usage.requests is not None
    complete = counted and not failed_request and len(records) == len(counts)
    return Tokens("complete" if complete else "partial", totals, records)


def _disagree(usage: Usage, requests: Sequence[TokensUsed]) -> bool:
    """Whether the requests and the CLI's own sums differ.

    Without the gateway this is possible, and one of them is wrong.
    """
    for name in ("input", "output"):
        total = getattr(usage, name)
        counts = [getattr(request, name) for request in requests]
        if total is not None and None not in counts and sum(counts) != total:
            return True
    return False


def _by_model(usage: Usage | None) -> Sequence[ModelUsage]:
    return usage.models if usage is not None else ()


def _record(count: TokensUsed | ModelUsage) -> Record | None:
    """One record; None if a part of a total is unknown or out of range."""
    if count.input is None or count.tool is None or count.output is None or count.thinking is None:
        return None
    if isinstance(count, ModelUsage) and count.unknown:
        return None
    parts = (count.input, count.tool, count.output, count.thinking)
    if min(parts) < 0 or count.input + count.tool > _MOST or count.output + count.thinking > _MOST:
        return None
    cached = count.cached
    details: tuple[int | None, int | None] = (None, None)
    if cached is not None and 0 <= cached <= count.input:
        details = (count.input - cached + count.tool, cached)
    tokens = TokenUsage(
        Input(count.input + count.tool, *details),
        Output(count.output + count.thinking, count.output, count.thinking),
    )
    requests = 1 if isinstance(count, TokensUsed) else None
    return Record(model=count.model or None, requests=requests, tokens=tokens)


def _summed(parts: Sequence[TokenUsage]) -> TokenUsage | None:
    """Sum each field; a detail is None if a part does not have it.

    Return None if a total is too large.
    """
    total_in, total_out = sum(part.input.total for part in parts), sum(part.output.total for part in parts)
    if max(total_in, total_out) > _MOST:
        return None
    return TokenUsage(
        Input(
            total_in,
            _known_sum(part.input.uncached for part in parts),
            _known_sum(part.input.cache_read for part in parts),
        ),
        Output(
            total_out,
            _known_sum(part.output.visible for part in parts),
            _known_sum(part.output.reasoning for part in parts),
        ),
    )


def _known_sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
