"""Build the usage in SubLang's `done` event: exact token counts, and whether they include all
requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from geminids.events.cost import with_reported_totals
from geminids.events.model import Finished, ModelUsage, TokensUsed, Usage

__all__ = [
    "AgentUsage",
    "Input",
    "Money",
    "Output",
    "RunTokens",
    "TokenCounts",
    "UsageRecord",
    "cost_of",
    "tokens_of",
]

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


class TokenCounts(msgspec.Struct, frozen=True):
    """Input and output tokens."""

    input: Input
    output: Output


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one request. If the tokens of single requests are not known, a record contains
    the tokens of all requests to one model."""

    model: str | None = None
    provider: str | None = None
    requests: int | None = None
    tokens: TokenCounts


class RunTokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens of a run.

    If `coverage` is `complete`, every request is included. If `coverage` is `partial`, the numbers
    of the included requests are exact, but other requests may be missing.
    """

    coverage: str
    totals: TokenCounts
    records: tuple[UsageRecord, ...] = ()


class Money(msgspec.Struct, frozen=True):
    """The cost of a run.

    The source `agent-estimate` means that the cost was computed from known prices.
    """

    amount: float
    currency: str = "USD"
    source: str = "agent-estimate"


class AgentUsage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The usage of a run: the number of tool calls and, if known, the tokens and the cost."""

    tool_uses: int
    tokens: RunTokens | None = None
    cost: Money | None = None


def cost_of(finished: Finished, tokens: RunTokens | None, *, failed_request: bool = False) -> Money | None:
    """Return the cost of a run; None if the cost is not known.

    `failed_request` is True if the API rejected at least one request. If a request was rejected, no
    tokens are known (`tokens` is None) and the cost is 0 dollars, the API has answered none of the
    requests. This 0 only means that nothing was measured, so the result is None.
    """
    usd = finished.cost.usd if finished.cost is not None else None
    if usd is None or (failed_request and tokens is None and not usd):
        return None
    return Money(float(usd))


def tokens_of(
    finished: Finished, requests: Sequence[TokensUsed], *, failed_request: bool = False
) -> RunTokens | None:
    """Return the tokens of a run; None if there are no reliable counts.

    The result has one record for each response. If the tokens of single responses are not known, it
    has one record for each model. `failed_request` is True if the API rejected at least one
    request; `coverage` is then `partial`.
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
    # Only the gateway counts requests. Without its count, requests may be missing from the sums.
    counted = usage is not None and usage.requests is not None
    complete = counted and not failed_request and len(records) == len(counts)
    return RunTokens("complete" if complete else "partial", totals, records)


def _disagree(usage: Usage, requests: Sequence[TokensUsed]) -> bool:
    """Return whether the sums over `requests` differ from `usage`, the sums that the CLI reports.

    The sums can differ only in runs without the gateway. If they differ, either `requests` or
    `usage` is wrong.
    """
    for name in ("input", "output"):
        total = getattr(usage, name)
        counts = [getattr(request, name) for request in requests]
        if total is not None and None not in counts and sum(counts) != total:
            return True
    return False


def _by_model(usage: Usage | None) -> Sequence[ModelUsage]:
    if usage is None or usage.models:
        return usage.models if usage is not None else ()
    total = with_reported_totals(usage)
    if total is usage:
        return ()
    # The output of the CLI names no model, so one record contains all tokens.
    return (
        ModelUsage(
            model="",
            input=total.input,
            cached=total.cached,
            output=total.output,
            thinking=total.thinking,
            tool=total.tool,
            unknown=total.unknown,
        ),
    )


def _record(count: TokensUsed | ModelUsage) -> UsageRecord | None:
    """Convert token counts to a usage record. Return None if a count that is needed for a total is
    missing or out of range."""
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
    tokens = TokenCounts(
        Input(count.input + count.tool, *details),
        Output(count.output + count.thinking, count.output, count.thinking),
    )
    requests = 1 if isinstance(count, TokensUsed) else None
    return UsageRecord(model=count.model or None, requests=requests, tokens=tokens)


def _summed(parts: Sequence[TokenCounts]) -> TokenCounts | None:
    """Add up the token counts in `parts`, field by field.

    In the sum, an optional field is None if it is None in at least one of `parts`. Return None if a
    total is too large for JavaScript.
    """
    total_in, total_out = sum(part.input.total for part in parts), sum(part.output.total for part in parts)
    if max(total_in, total_out) > _MOST:
        return None
    return TokenCounts(
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
