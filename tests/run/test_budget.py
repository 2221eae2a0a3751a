"""Who keeps the budget of a run or turn, and what has stopped it."""

from __future__ import annotations

from typing import Any

from geminids import TokensUsed, ToolStarted
from geminids.events.ledger import Ledger
from geminids.gateway.told import Halt
from geminids.launch.auth import Auth
from geminids.options import Options, make_options
from geminids.run.budget import RunBudget, used_up
from geminids.run.gate import RunGate
from geminids.toolchain.releases import release_of


def used(turn: int, role: Any = "main") -> TokensUsed:
    return TokensUsed(
        at=0,
        seq=0,
        attempt=1,
        turn=turn,
        model="gemini-2.5-pro",
        role=role,
        input=1_000,
        cached=0,
        output=100,
        thinking=0,
        tool=0,
    )


def tool(turn: int) -> ToolStarted:
    return ToolStarted(
        at=0, seq=0, attempt=1, turn=turn, id=f"t{turn}", name="glob", kind="search", title="", input=None
    )


def budget_of(**limits: Any) -> tuple[RunBudget, list[Halt]]:
    """A budget without the gateway, and whom it has called."""
    gate = RunGate(make_options(Options(), gateway="off", **limits))
    gate.open({}, Auth("key", "somewhere"), release_of("0.61.0"))
    spent: list[Halt] = []
    return RunBudget(gate, Ledger(), lambda events: None, lambda halt: None, spent.append), spent


def test_nobody_keeps_a_budget_that_is_none() -> None:
    """Without a gate nothing is counted, and nobody is in a hurry."""
    called: list[Halt] = []
    budget = RunBudget(None, Ledger(), lambda events: None, called.append, called.append)
    assert budget.begin() is None
    assert budget.hurry is None and budget.overseer is None
    budget.hear([tool(1), used(1)])
    budget.finish()
    assert (called, budget.halted("stopped")) == ([], None)


def test_it_is_told_once_when_it_is_used_up() -> None:
    """And only what has stopped the run counts as what has stopped it."""
    budget, spent = budget_of(max_requests=1)
    assert budget.begin() is None and budget.hurry is not None
    budget.hear([tool(1)])
    assert budget.hurry() and spent == []
    budget.hear([used(1)])
    budget.hear([tool(2), used(2)])
    (halt,) = spent
    assert budget.halted(halt.message) == halt
    assert budget.halted("interrupted by the caller") is None, "somebody was there first"
    assert budget.halted(None) is None, "it has ended by itself"


def test_what_was_used_when_nobody_could_sum_up() -> None:
    """All that was told, and no word of how many requests there were."""
    new, usage = used_up([used(1), used(2, "subagent")], None, Ledger())
    assert new == [] and usage is not None
    assert (usage.input, usage.output, usage.requests) == (2_000, 200, None)
    new, usage = used_up([used(1)], [used(1), used(1, "utility")], Ledger())
    assert [one.role for one in new] == ["utility"] and usage is not None
    assert (usage.input, usage.requests) == (2_000, None)
    assert used_up([], None, Ledger()) == ([], None)
