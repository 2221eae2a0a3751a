"""The small words of a stall: times, shares of a core, and command lines that fit in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geminids.events.stall import StallProcess

if TYPE_CHECKING:
    from geminids.run.stall.processes import Seen

__all__ = ["IDLE_CPU", "children_of", "cpu_words", "cut", "named", "rounded", "time_words"]

IDLE_CPU = 2.0
"""Less than this share of a core is a process that ticks over."""
_LONGEST = 200
_LONGEST_CHILD = 60
_MOST_CHILDREN = 5


def time_words(seconds: float) -> str:
    """A time as one says it.

    >>> time_words(31.4), time_words(600), time_words(7500)
    ('31 s', '10 min', '2 h 5 min')
    """
    whole = round(max(seconds, 0.0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def rounded(seconds: float) -> float:
    return round(max(seconds, 0.0), 1)


def cpu_words(cpu: float | None) -> list[str]:
    if cpu is None:
        return []
    return ["no CPU"] if cpu < IDLE_CPU else [f"{cpu:.0f} % CPU"]


def cut(text: str, longest: int = _LONGEST) -> str:
    """One line of text that is not too long."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def children_of(found: Sequence[Seen], clean: Callable[[str], str]) -> tuple[StallProcess, ...]:
    """The first few of them."""
    return tuple(StallProcess(one.pid, cut(clean(one.command))) for one in found[:_MOST_CHILDREN])


def named(children: Sequence[StallProcess], total: int) -> str:
    """These, and how many more there are."""
    told = [f"{cut(one.command, _LONGEST_CHILD)} (pid {one.pid})" for one in children]
    more = total - len(children)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")
