"""What has to be said beside the numbers of `geminids usage`: whose prices, what is in them, and what is missing."""

from __future__ import annotations

from decimal import Decimal

from geminids.views.amounts import count
from geminids.views.safe import one_line
from geminids.views.usage import Report, Row

__all__ = ["cost", "digits_of", "dollars", "notes", "short"]


def short(number: int) -> str:
    """A number of tokens with three digits that matter.

    >>> short(950), short(31_204), short(999_999), short(2_299_035_220)
    ('950', '31.2k', '1.00M', '2.30G')
    """
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # What is rounded up to a thousand of a unit is one of the next.
        if number >= size - size // 2000:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
    return str(number)


def digits_of(total: Row) -> int:
    """How many digits all money of a report has: cents, and more where it is less than a dollar together."""
    return 4 if 0 < total.usd < 1 else 2


def dollars(usd: Decimal, digits: int = 2) -> str:
    """Money; what is too little to be shown is not nothing.

    >>> dollars(Decimal("1398.8394")), dollars(Decimal("0.00018"), 4), dollars(Decimal("0.0018")), dollars(Decimal(0))
    ('$1,398.84', '$0.0002', '<$0.01', '$0.00')
    """
    shown = f"{usd:,.{digits}f}"
    if usd > 0 and not shown.strip("0."):
        return f"<${Decimal(1).scaleb(-digits)}"
    return f"${shown}"


def cost(row: Row, digits: int = 2, at_least: str = "≥") -> str:
    """The price of a row; marked where it is that of a part, and none where nobody knows any."""
    if row.unpriced == row.requests and row.requests:
        return "-"
    return (at_least if row.unpriced else "") + dollars(row.usd, digits)


def notes(report: Report) -> list[str]:
    """One paragraph each."""
    told = []
    if report.unpriced:
        names = ", ".join(one_line(name, 80) for name in report.unpriced)
        told.append(f"Nobody knows the price of {names}: the cost is that of the other models.")
    prices = "the list price of the tokens"
    if report.prices is not None:
        prices = f"that of {one_line(report.prices, 4000)}, and where that has none, {prices}"
    told.append(f"The cost is {prices}, request by request; what is billed may be less.")
    told.append(_errands(report.total))
    return told


def _errands(total: Row) -> str:
    what = "what the CLI asks for itself (the router of `auto`, summaries, loop checks, searches)"
    if total.errands:
        amount = f"{count(total.errands, 'request')}, {short(total.errand_tokens)} tokens"
        money = dollars(total.errand_usd, digits_of(total))
        return (
            f"Errands are {what}: {amount}, {money} of the sums above. Session files do not hold them: they are "
            "known for runs of geminids through its gateway, and missing for all others. What failed is missing too."
        )
    return (
        f"Not in it: {what}, and what failed. Session files do not hold that; runs of geminids through its gateway "
        "write it down, and there are none here."
    )
