"""The output of chat commands about earlier turns: cost, thoughts and the last exchange."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from geminids.events.cost import Cost
from geminids.events.model import ModelUsage, Thought, Usage
from geminids.sessions.transcript import PromptEntry, TextEntry, TranscriptEntry
from geminids.views.terminal import chat_history


def _usage(model: str, requests: int | None = 1, unknown: int = 0, **counts: Any) -> Usage:
    used = ModelUsage(model=model, unknown=unknown, **counts)
    return Usage(requests=requests, models=(used,), unknown=unknown, **counts)


def test_the_cost_is_the_sum_by_model() -> None:
    """The cost table has a row for each model, and a row for all if there are several models."""
    flash = _usage("flash", input=1000, cached=500, output=10, thinking=5)
    pro = _usage("pro", 2, input=2000, cached=0, output=20, thinking=0)
    assert [line.plain for line in chat_history.cost([flash, flash, pro])] == [
        "3 turns · 4 requests",
        "model  input  cached  output  thinking",
        "flash  2,000   1,000      20        10",
        "pro    2,000       0      20         0",
        "all    4,000   1,000      40        10",
    ]
    assert len(list(chat_history.cost([flash]))) == 3


def test_unknown_numbers_have_a_question_mark() -> None:
    """A question mark stands for an unknown number, or follows an incomplete sum."""
    known = _usage("flash", input=1000, cached=500, output=10, thinking=None)
    lines = [line.plain for line in chat_history.cost([known, _usage("flash", None, input=None, output=5)])]
    assert lines[0] == "2 turns"
    assert lines[2].split() == ["flash", "1,000+?", "500+?", "15", "?"]
    assert [line.plain for line in chat_history.cost([])] == ["no tokens yet: no prompt was answered"]


def test_requests_with_unknown_tokens_and_answers_that_were_not_used() -> None:
    """Requests with unknown tokens and unused answers are stated in words.

    Numbers that lack them have a question mark.
    """
    usage = _usage("flash", 3, 1, input=1000, cached=500, output=10, thinking=0)
    lines = [line.plain for line in chat_history.cost([usage], (), (2,))]
    assert lines[0] == "1 turn · 3 requests, 1 with unknown tokens"
    assert lines[2].split() == ["flash", "1,000+?", "500+?", "10+?", "0+?"]
    assert lines[3] == "1 answer was paid for but not used: the CLI asked again"


def test_thoughts_in_full() -> None:
    """Thoughts are shown with subject and text; control characters become symbols."""
    thought = Thought(at=0, seq=0, attempt=1, turn=1, subject="Plan", text="first\nthen\x1b[2J")
    assert [line.plain for line in chat_history.thoughts([thought])] == ["Plan", "first", "then␛[2J"]
    assert "no thoughts" in next(chat_history.thoughts([])).plain


def test_the_last_exchange_is_short() -> None:
    """The last exchange is the last prompt and the last text after it, shortened.

    Text of a subagent is not shown.
    """
    long = "\n".join(f"row {number}" for number in range(9))
    entries: list[TranscriptEntry] = [
        PromptEntry(text="first"),
        TextEntry(text="one"),
        PromptEntry(text="second\nquestion"),
        TextEntry(text="let me see"),
        TextEntry(text=f"{'x' * 300}\n{long}"),
        TextEntry(text="of an agent", depth=1),
    ]
    lines = [line.plain for line in chat_history.last_exchange(entries)]
    assert lines[:3] == ["> second question", f"{'x' * 199}…", "row 0"]
    assert lines[-1] == "… 4 more lines"
    assert list(chat_history.last_exchange([])) == []


def test_the_cost_of_a_chat() -> None:
    """The cost is one line.

    It is an estimate if one turn's cost is, and a missing price is named.
    """
    flash = _usage("flash", input=1000, cached=500, output=10, thinking=5)
    exact = Cost(usd=Decimal("0.01"), list_price=Decimal("0.01"), basis="exact", auth_mode="key")
    estimate = Cost(usd=Decimal("0.5"), list_price=Decimal("0.5"), basis="estimate", auth_mode="key")
    unknown = Cost(basis="unknown", auth_mode="key")
    list_price_only = Cost(list_price=Decimal(2), basis="exact", auth_mode="account")
    unpriced = Cost(basis="unknown", auth_mode="key", unpriced=("gemini-99-ultra",))

    def lines(*costs: Cost) -> list[str]:
        return [line.plain for line in chat_history.cost([flash], costs)][3:]

    assert lines(exact, exact) == ["$0.0200"]
    assert lines(exact, estimate) == ["about $0.5100"]
    assert lines(exact, unknown) == ["about $0.0100"]
    assert lines(list_price_only, list_price_only) == [
        "$4.00 by list price (the bill of the account is not known)"
    ]
    assert lines(exact, unpriced) == [
        "cost not known: no price for gemini-99-ultra (use --prices FILE to set one)"
    ]
    assert lines(unknown) == ["cost not known"]
    assert lines() == []
