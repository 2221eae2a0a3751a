"""The notes below the numbers of `geminids usage`: prices, what is included, what is missing."""

from __future__ import annotations

from decimal import Decimal

from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.usage.usage import Report, Row

__all__ = ["cost", "digits_of", "dollars", "notes", "short"]


def short(number: int) -> str:
    """A number of tokens with three significant digits.

    >>> short(950), short(31_204), short(999_999), short(2_299_035_220)
    ('950', '31.2k', '1.00M', '2.30G')
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # 999.95k is 1.00M.
        if number >= size - size // 2000:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return str(number)


def digits_of(total: Row) -> int:
    """The digits of all money in a report: two, or four if the total is below a dollar."""
    return 4 if 0 < total.usd < 1 else 2


def dollars(usd: Decimal, digits: int = 2) -> str:
    """An amount of money.

    An amount too small for the digits is shown as less than the smallest one, not as zero.

    >>> dollars(Decimal("1398.8394")), dollars(Decimal("0.00018"), 4), dollars(Decimal("0.0018")), dollars(Decimal(0))
    ('$1,398.84', '$0.0002', '<$0.01', '$0.00')
    """
    shown = f"{usd:,.{digits}f}"
    if usd > 0 and not shown.strip("0."):
        return f"<${Decimal(1).scaleb(-digits)}"
    return f"${shown}"


def cost(row: Row, digits: int = 2, at_least: str = "≥") -> str:
    """The price of a row; marked if only a part has a known price, "-" if no part has one."""
    if row.unpriced == row.requests and row.requests:
        return "-"
    return (at_least if row.unpriced else "") + dollars(row.usd, digits)


def notes(report: Report) -> list[str]:
    """The notes, one paragraph each."""
    paragraphs = []
    if report.unpriced:
        names = ", ".join(one_line(name, 80) for name in report.unpriced)
        paragraphs.append(f"The price of {names} is unknown: the cost is that of the other models.")
    prices = "the list price of the tokens"
    if report.prices is not None:
        prices = f"by {one_line(report.prices, 4000)}, and for models without a price there {prices}"
    paragraphs.append(f"The cost is {prices}, request by request; the bill may be lower.")
    paragraphs += _beyond_session_files(report.total)
    return paragraphs


def _beyond_session_files(total: Row) -> list[str]:
    """What the request log added, or that it has nothing."""
    digits = digits_of(total)
    outside = (
        "requests outside the conversation (model router, web search, web fetch, compression, loop checks)"
    )
    discarded = "answers that the CLI threw away"
    paragraphs = []
    if total.other_requests:
        amount = _amount(total.other_requests, total.other_tokens, total.other_usd, digits)
        paragraphs.append(f"Other requests are {outside}: {amount} of the sums above.")
    if total.discarded_requests:
        amount = _amount(total.discarded_requests, total.discarded_tokens, total.discarded_usd, digits)
        paragraphs.append(f"Discarded requests are {discarded}: {amount} of the sums above.")
    if total.unknown_requests:
        which = count(total.unknown_requests, "request")
        paragraphs.append(
            f"{which} ended before the API reported the tokens (a stream that was cut off): the real cost is higher."
        )
    if total.other_requests or total.discarded_requests:
        return [
            *paragraphs,
            "Session files do not hold these requests: they are known for runs of geminids through its gateway and "
            "missing for all other runs. Failed requests are not counted.",
        ]
    return [
        *paragraphs,
        f"Not included: {outside}, {discarded}, and failed requests. Session files do not hold them; runs of geminids "
        "through its gateway log them, and there are none here.",
    ]


def _amount(requests: int, tokens: int, usd: Decimal, digits: int) -> str:
    return f"{count(requests, 'request')}, {short(tokens)} tokens, {dollars(usd, digits)}"
