"""Tokens of a run as SubLang's `done` tells them: exact counts, and whether every request is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from geminids.events.model import Finished, ModelUsage, TokensUsed, Usage

__all__ = ["AgentUsage", "Input", "Money", "Output", "Record", "TokenUsage", "Tokens", "cost_of", "tokens_of"]

_MOST = 2**53 - 1  # what JSON's readers keep exactly


class Input(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Tokens that went in. `total` has the cached ones in it."""

    total: int
    uncached: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class Output(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens that came out. `total` has the thinking in it."""

    total: int
    visible: int | None = None
    reasoning: int | None = None


class TokenUsage(msgspec.Struct, frozen=True):
    """What went in and what came out."""

    input: Input
    output: Output


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one request, or of several of one model where single ones are not known."""

    model: str | None = None
    provider: str | None = None
    requests: int | None = None
    tokens: TokenUsage


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """`complete`: every request of the run is in it; `partial`: each number is true, a request may be missing."""

    coverage: str
    totals: TokenUsage
    records: tuple[Record, ...] = ()


class Money(msgspec.Struct, frozen=True):
    """What a run costs; `agent-estimate`: by the prices that the agent's side knows, not by a bill."""

    amount: float
    currency: str = "USD"
    source: str = "agent-estimate"


class AgentUsage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The usage of a run: distinct tool calls, tokens where true counts exist, and money where it is known."""

    tool_uses: int
    tokens: Tokens | None = None
    cost: Money | None = None


def cost_of(finished: Finished) -> Money | None:
    """What is paid for a run, where that is known."""
    usd = finished.cost.usd if finished.cost is not None else None
    return None if usd is None else Money(float(usd))


def tokens_of(
    finished: Finished, requests: Sequence[TokensUsed], *, failed_request: bool = False
) -> Tokens | None:
    """The tokens of a run, one record a response; None if no request has a count that is known to be true.

    `failed_request`: the API refused one on the way. The format calls such a run `partial`.
    """
    usage = finished.usage
    answered = [request for request in requests if not request.is_http_error]
    if usage is not None and answered and finished.attempts == 1 and _disagree(usage, answered):
        return None
    counts: Sequence[TokensUsed | ModelUsage] = answered or _by_model(usage)
    records = tuple(record for one in counts if (record := _record(one)) is not None)
    if not records:
        return None
    totals = _summed([record.tokens for record in records])
    if totals is None or (failed_request and totals.input.total == totals.output.total == 0):
        return None  # nothing was answered: these zeros were not measured
    # Only the gateway counts requests, and only its sums prove that none is missing.
    counted = usage is not None and usage.requests is not None
    complete = counted and not failed_request and len(records) == len(counts)
    return Tokens("complete" if complete else "partial", totals, records)


def _disagree(usage: Usage, requests: Sequence[TokensUsed]) -> bool:
    """Whether the requests are other than the CLI's own sums, without the gateway: one of the two is wrong then."""
    for name in ("input", "output"):
        whole = getattr(usage, name)
        parts = [getattr(one, name) for one in requests]
        if whole is not None and None not in parts and sum(parts) != whole:
            return True
    return False


def _by_model(usage: Usage | None) -> Sequence[ModelUsage]:
    return usage.models if usage is not None else ()


def _record(count: TokensUsed | ModelUsage) -> Record | None:
    """One record; None where a part of a total is not known, or is no count at all."""
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
    """Member by member; a detail that one of them does not know is not known of all. None where it is too much."""
    total_in, total_out = sum(one.input.total for one in parts), sum(one.output.total for one in parts)
    if max(total_in, total_out) > _MOST:
        return None
    return TokenUsage(
        Input(
            total_in,
            _known_sum(one.input.uncached for one in parts),
            _known_sum(one.input.cache_read for one in parts),
        ),
        Output(
            total_out,
            _known_sum(one.output.visible for one in parts),
            _known_sum(one.output.reasoning for one in parts),
        ),
    )


def _known_sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
