"""Write the notes below a usage report: where prices come from, and which requests are included."""

from __future__ import annotations

from decimal import Decimal

from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.usage.usage import Report, UsageRow

__all__ = ["cost", "dollars", "money_digits", "notes", "short_number"]


def short_number(number: int) -> str:
    """Format a number of tokens with three significant digits.

    >>> short_number(950), short_number(31_204), short_number(999_999), short_number(2_299_035_220)
    ('950', '31.2k', '1.00M', '2.30G')
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # Round up to the next unit: 999.95k becomes 1.00M.
        if number >= size - size // 2000:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return str(number)


def money_digits(total: UsageRow) -> int:
    """Return the number of decimal places for the costs in a report: four if the total is below $1,
    otherwise two."""
    return 4 if 0 < total.usd < 1 else 2


def dollars(usd: Decimal, digits: int = 2) -> str:
    """Format an amount of dollars with `digits` decimal places.

    An amount that would be rounded to zero is shown as less than the smallest amount: "<$0.01".

    >>> dollars(Decimal("1398.8394")), dollars(Decimal("0.00018"), 4), dollars(Decimal("0.0018")), dollars(Decimal(0))
    ('$1,398.84', '$0.0002', '<$0.01', '$0.00')
    """
    shown = f"{usd:,.{digits}f}"
    if usd > 0 and not shown.strip("0."):
        return f"<${Decimal(1).scaleb(-digits)}"
    return f"${shown}"


def cost(row: UsageRow, digits: int = 2, at_least: str = "≥") -> str:
    """Format the cost of a row.

    If the price is known only for some of the requests, `at_least` is put before the cost. If no
    price is known, the result is "-".
    """
    if row.unpriced == row.requests and row.requests:
        return "-"
    return (at_least if row.unpriced else "") + dollars(row.usd, digits)


def notes(report: Report) -> list[str]:
    """Return the notes below a report, as a list of paragraphs."""
    paragraphs = []
    if report.unpriced:
        names = ", ".join(one_line(name, 80) for name in report.unpriced)
        paragraphs.append(f"The price of {names} is unknown: the cost includes only the other models.")
    if report.prices is None:
        paragraphs.append("The cost is the list price of the tokens of each request; the bill may be lower.")
    else:
        file = one_line(report.prices, 4000)
        paragraphs.append(
            f"The cost of each request is calculated with the prices in {file} or, for a model without a "
            "price in this file, with the list price. The bill may be lower."
        )
    paragraphs += _beyond_session_files(report.total)
    return paragraphs


def _beyond_session_files(total: UsageRow) -> list[str]:
    """Return notes about the requests that are not in session files.

    The notes say how many of these requests the report includes. If it includes none, they say
    which requests are missing.
    """
    digits = money_digits(total)
    outside = (
        "requests outside the conversation (model router, web search, web fetch, compression, loop checks)"
    )
    discarded = "answers that the CLI did not use"
    paragraphs = []
    if total.other_requests:
        amount = _amount(total.other_requests, total.other_tokens, total.other_usd, digits)
        paragraphs.append(f"Other requests are {outside}. The sums above include them: {amount}.")
    if total.discarded_requests:
        amount = _amount(total.discarded_requests, total.discarded_tokens, total.discarded_usd, digits)
        paragraphs.append(f"Discarded requests are {discarded}. The sums above include them: {amount}.")
    if total.unknown_requests:
        which = count(total.unknown_requests, "request")
        paragraphs.append(
            f"{which} ended before the API reported the tokens (the stream was interrupted): the real cost is higher."
        )
    if total.scripted_requests:
        which = count(total.scripted_requests, "request")
        tokens = short_number(total.scripted_tokens)
        paragraphs.append(
            f"The sums above include {which} ({tokens} tokens) that a script or a cassette answered, at no cost."
        )
    if total.other_requests or total.discarded_requests:
        return [
            *paragraphs,
            "Session files do not contain these requests. geminids logs them for runs through its gateway; for all "
            "other runs, they are missing. Failed requests are not counted.",
        ]
    return [
        *paragraphs,
        f"Not included: {outside}, {discarded}, and failed requests. Session files do not contain these requests. "
        "geminids logs them only for runs through its gateway, and this report contains no such requests.",
    ]


def _amount(requests: int, tokens: int, usd: Decimal, digits: int) -> str:
    return f"{count(requests, 'request')}, {short_number(tokens)} tokens, {dollars(usd, digits)}"
