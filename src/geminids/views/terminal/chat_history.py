"""What a chat tells between its turns: its tokens, its thoughts, where it was left, and how to come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from rich.text import Text

from geminids.events.cost import Cost
from geminids.events.model import ModelUsage, Thought, Usage
from geminids.sessions.handover_format import without_handover
from geminids.sessions.transcript import AgentText, Entry, Prompt
from geminids.views.amounts import count, discarded, money
from geminids.views.sanitize import clean, one_line

__all__ = ["cost", "last_exchange", "thoughts"]

_COUNTS = ("input", "cached", "output", "thinking")
_ROWS = 6


def cost(turns: Sequence[Usage], costs: Sequence[Cost] = (), unused: Sequence[int] = ()) -> Iterator[Text]:
    """The tokens of a chat, by model, and its money; a number that is not known is a question mark.

    `unused` are the numbers of the requests whose answers the CLI discarded.
    """
    if not turns:
        yield Text("no tokens yet: nothing was answered")
        return
    by_model: dict[str, list[ModelUsage]] = {}
    for turn in turns:
        for used in turn.models:
            by_model.setdefault(one_line(used.model), []).append(used)
    rows = [(model, *(_sum(uses, name) for name in _COUNTS)) for model, uses in by_model.items()]
    if len(rows) != 1:
        rows.append(("all", *(_sum(turns, name) for name in _COUNTS)))
    requests = [turn.requests for turn in turns if turn.requests is not None]
    told = count(len(turns), "turn")
    if len(requests) == len(turns):
        told += f" · {count(sum(requests), 'request')}"
    if unknown := sum(turn.unknown for turn in turns):
        told += f", {unknown} with unknown tokens"
    yield Text(told, "dim")
    table = [("model", *_COUNTS), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for number, row in enumerate(table):
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield Text("  ".join((row[0].ljust(widths[0]), *numbers)), "dim" if not number else "")

    if told := one_line(money(_together(costs))) if costs else "":
        yield Text(told, "dim")
    if told := discarded(unused):
        yield Text(told, "dim")


def _together(costs: Sequence[Cost]) -> Cost:
    """The turns as one: it is as well known as the least known of them."""
    # A turn that has asked nobody, or that nobody knows anything of, makes the sum an estimate.
    known = [one for one in costs if one.basis != "unknown" or one.unpriced]
    paid, listed = [one.usd for one in known], [one.list_price for one in known]
    return Cost(
        usd=None if None in paid or not known else sum(filter(None, paid), Decimal(0)),
        list_price=None if None in listed or not known else sum(filter(None, listed), Decimal(0)),
        basis="exact" if all(one.basis == "exact" for one in costs) else "estimate",
        auth_mode=costs[-1].auth_mode,
        unpriced=tuple(dict.fromkeys(name for one in costs for name in one.unpriced)),
    )


def _sum(uses: Sequence[Usage] | Sequence[ModelUsage], name: str) -> str:
    numbers = [getattr(one, name) for one in uses]
    known = [number for number in numbers if number is not None]
    if not known:
        return "?"
    whole = len(known) == len(numbers) and not any(one.unknown for one in uses)
    return f"{sum(known):,}" + ("" if whole else "+?")


def thoughts(those: Iterable[Thought]) -> Iterator[Text]:
    """What was thought, in full."""
    told = False
    for thought in those:
        told = True
        yield Text(one_line(thought.subject or "thought"), "bold")
        yield from (Text(row, "dim") for row in clean(thought.text).strip().splitlines())
    if not told:
        yield Text("no thoughts: the model has told none")


def last_exchange(entries: Iterable[Entry]) -> Iterator[Text]:
    """The last prompt of a stored conversation and what was answered, in a few dim lines."""
    asked, said = "", ""
    for entry in entries:
        if entry.depth:
            continue
        if isinstance(entry, Prompt):
            asked, said = without_handover(entry.text), ""
        elif isinstance(entry, AgentText):
            said = entry.text
    if asked:
        yield Text(f"> {one_line(asked, 200)}", "dim")
    rows = [row for row in clean(said).splitlines() if row.strip()]
    yield from (Text(row[:200], "dim") for row in rows[:_ROWS])
    if len(rows) > _ROWS:
        yield Text(f"… {count(len(rows) - _ROWS, 'more line')}", "dim")
