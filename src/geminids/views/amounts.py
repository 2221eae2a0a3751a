"""Format durations, token counts and costs for people."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from geminids.events.cost import Cost
from geminids.events.model import Usage

__all__ = ["count", "discarded", "dollars", "duration", "money", "tokens"]


def duration(ms: float) -> str:
    """Format a duration, given in milliseconds, in the units that people use.

    >>> duration(75), duration(3240), duration(12_900), duration(125_000), duration(3_720_000)
    ('75 ms', '3.2 s', '12 s', '2 min 05 s', '1 h 02 min')
    """
    # Round down, so that "10 s" appears only after ten full seconds.
    if ms < 100:
        return f"{max(0, int(ms))} ms"
    if ms < 10_000:
        return f"{int(ms / 100) / 10} s"
    seconds = int(ms / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def tokens(usage: Usage) -> str:
    """Format the tokens that a run used, and the number of requests whose tokens are unknown.

    >>> tokens(Usage(input=31204, cached=23000, output=120, thinking=35))
    '31,204 tokens in (23,000 cached) · 120 out · 35 thinking'
    >>> tokens(Usage(input=900, output=20, requests=2, unknown=1)), tokens(Usage(requests=2, unknown=2))
    ('900 tokens in · 20 out · and 1 request with unknown tokens', '2 requests with unknown tokens')
    """
    unknown = f"{count(usage.unknown, 'request')} with unknown tokens" if usage.unknown else ""
    if not usage.input and not usage.output:
        return unknown
    parts = []
    if usage.input is not None:
        cached = f" ({usage.cached:,} cached)" if usage.cached else ""
        parts.append(f"{usage.input:,} tokens in{cached}")
    if usage.output is not None:
        parts.append(f"{usage.output:,} out")
    if usage.thinking:
        parts.append(f"{usage.thinking:,} thinking")
    elif usage.thinking is None and usage.total is not None:
        # The other tokens are thinking or tool prompts; the CLI's output does not distinguish them.
        more = usage.total - (usage.input or 0) - (usage.output or 0)
        parts += [f"{more:,} for thinking or API tools"] if more > 0 else []
    if unknown:
        parts.append(f"and {unknown}")
    return " · ".join(parts)


def discarded(requests: Sequence[int]) -> str:
    """Return a sentence that says how many answers of the model the CLI did not use. Return an
    empty string if there are none.

    `requests` contains one item for each of these answers: the number of its request
    (`TokensUsed.request`).

    >>> discarded((3,))
    '1 answer was paid for but not used: the CLI asked again'
    >>> discarded((3, 4))
    '2 answers were paid for but not used: the CLI asked again'
    """
    if not requests:
        return ""
    was = "was" if len(requests) == 1 else "were"
    return f"{count(len(requests), 'answer')} {was} paid for but not used: the CLI asked again"


def dollars(amount: Decimal) -> str:
    """Format an amount of dollars: four decimal places below one dollar, otherwise two.

    >>> dollars(Decimal("0.01234")), dollars(Decimal("0.000004")), dollars(Decimal(0)), dollars(Decimal("12.345"))
    ('$0.0123', 'under $0.0001', '$0', '$12.34')
    """
    if 0 < amount < Decimal("0.00005"):
        return "under $0.0001"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}" if amount else "$0"


def money(cost: Cost) -> str:
    """Format the cost of a run. An estimate starts with "about".

    Return an empty string if the answers came from a script, not from a real model.

    >>> money(Cost(usd=Decimal("0.01234"), basis="estimate", auth_mode="key"))
    'about $0.0123'
    >>> money(Cost(list_price=Decimal("0.5"), basis="exact", auth_mode="account"))
    '$0.5000 by list price (the bill of the account is not known)'
    """
    if cost.auth_mode == "none":
        return ""
    if cost.usd is not None:
        return _amount(cost.usd, cost)
    if cost.list_price is not None:
        billed = _BILLED.get(cost.auth_mode or "", "the bill")
        return f"{_amount(cost.list_price, cost)} by list price ({billed} is not known)"
    if cost.unpriced:
        return f"cost not known: no price for {', '.join(cost.unpriced)} (use --prices FILE to set one)"
    return "cost not known"


_BILLED = {"account": "the bill of the account", "vertex": "the bill of Vertex"}


def _amount(amount: Decimal, cost: Cost) -> str:
    text = dollars(amount)
    # Do not write "under" for an estimate: the real amount can be larger, because a part is
    # unknown.
    return f"about {text.replace('under ', '')}" if cost.basis == "estimate" else text


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun, in the singular or plural: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
