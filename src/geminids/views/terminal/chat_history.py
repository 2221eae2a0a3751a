"""Format what a chat shows between its turns: its tokens and cost, the thoughts of the model, and
the last prompt and answer of a resumed session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from rich.text import Text

from geminids.events.cost import Cost
from geminids.events.model import ModelUsage, Thought, Usage
from geminids.sessions.handover_format import without_handover
from geminids.sessions.transcript import PromptEntry, TextEntry, TranscriptEntry
from geminids.views.amounts import count, discarded, money
from geminids.views.sanitize import clean, one_line

__all__ = ["cost", "last_exchange", "thoughts"]

_COUNTS = ("input", "cached", "output", "thinking")
_MAX_LINES = 6
_MAX_LENGTH = 200


def cost(turns: Sequence[Usage], costs: Sequence[Cost] = (), unused: Sequence[int] = ()) -> Iterator[Text]:
    """Yield the lines of a table with the tokens of a chat by model, and the chat's cost.

    `turns` and `costs` are the tokens and the costs of all turns. `unused` identifies the
    requests whose answers the CLI did not use: each item is the number of a request
    (`TokensUsed.request`). In the table, "?" stands for an unknown count.
    """
    if not turns:
        yield Text("no tokens yet: no prompt was answered")
        return
    by_model: dict[str, list[ModelUsage]] = {}
    for turn in turns:
        for used in turn.models:
            by_model.setdefault(one_line(used.model), []).append(used)
    rows = [(model, *(_sum(uses, name) for name in _COUNTS)) for model, uses in by_model.items()]
    if len(rows) != 1:
        rows.append(("all", *(_sum(turns, name) for name in _COUNTS)))
    requests = [turn.requests for turn in turns if turn.requests is not None]
    summary = count(len(turns), "turn")
    if len(requests) == len(turns):
        summary += f" · {count(sum(requests), 'request')}"
    if unknown := sum(turn.unknown for turn in turns):
        summary += f", {unknown} with unknown tokens"
    yield Text(summary, "dim")
    table = [("model", *_COUNTS), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for number, row in enumerate(table):
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield Text("  ".join((row[0].ljust(widths[0]), *numbers)), "dim" if not number else "")

    if line := one_line(money(_total(costs))) if costs else "":
        yield Text(line, "dim")
    if line := discarded(unused):
        yield Text(line, "dim")


def _total(costs: Sequence[Cost]) -> Cost:
    """Return the sum of the costs of all turns. The sum is exact only if all costs are exact."""
    # Leave out unknown costs, for example of a turn without requests. The sum is then an estimate.
    # Do not leave out a turn whose price is missing: the sum is then unknown.
    known = [cost for cost in costs if cost.basis != "unknown" or cost.unpriced]
    paid, listed = [cost.usd for cost in known], [cost.list_price for cost in known]
    return Cost(
        usd=None if None in paid or not known else sum(filter(None, paid), Decimal(0)),
        list_price=None if None in listed or not known else sum(filter(None, listed), Decimal(0)),
        basis="exact" if all(cost.basis == "exact" for cost in costs) else "estimate",
        auth_mode=costs[-1].auth_mode,
        unpriced=tuple(dict.fromkeys(name for cost in costs for name in cost.unpriced)),
    )


def _sum(uses: Sequence[Usage] | Sequence[ModelUsage], name: str) -> str:
    numbers = [getattr(usage, name) for usage in uses]
    known = [number for number in numbers if number is not None]
    if not known:
        return "?"
    is_complete = len(known) == len(numbers) and not any(usage.unknown for usage in uses)
    return f"{sum(known):,}" + ("" if is_complete else "+?")


def thoughts(shown: Iterable[Thought]) -> Iterator[Text]:
    """Yield the lines of all thoughts of the model, not shortened."""
    is_empty = True
    for thought in shown:
        is_empty = False
        yield Text(one_line(thought.subject or "thought"), "bold")
        yield from (Text(row, "dim") for row in clean(thought.text).strip().splitlines())
    if is_empty:
        yield Text("no thoughts: the model reported none")


def last_exchange(entries: Iterable[TranscriptEntry]) -> Iterator[Text]:
    """Yield the last prompt of a stored conversation and the answer to this prompt, in at most 8
    lines."""
    prompt, answer = "", ""
    for entry in entries:
        if entry.depth:
            continue
        if isinstance(entry, PromptEntry):
            prompt, answer = without_handover(entry.text), ""
        elif isinstance(entry, TextEntry):
            answer = entry.text
    if prompt:
        yield Text(f"> {one_line(prompt, 200)}", "dim")
    rows = [row for row in clean(answer).splitlines() if row.strip()]
    yield from (Text(_cut(row), "dim") for row in rows[:_MAX_LINES])
    if len(rows) > _MAX_LINES:
        yield Text(f"… {count(len(rows) - _MAX_LINES, 'more line')}", "dim")


def _cut(row: str) -> str:
    return row if len(row) <= _MAX_LENGTH else f"{row[: _MAX_LENGTH - 1]}…"
