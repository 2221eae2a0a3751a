"""The day's budget: one for all processes of a user, exact, and whole whatever happens."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from geminids.spending.budget import BudgetRefusal, Hold, Limits, Spending
from geminids.spending.daily_budget import DailyBudget
from geminids.spending.tokens import Counts

_MODEL = "gemini-2.5-flash"
_NOON = time.mktime((2026, 11, 16, 12, 0, 0, 0, 0, -1))
_HAMMER = """
import sys
from pathlib import Path
from geminids.spending.daily_budget import DailyBudget
from geminids.spending.budget import Hold, Limits
from geminids.spending.tokens import Counts
budget = DailyBudget(Path(sys.argv[1]), Limits(requests=100))
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    pass
taken = 0
for n in range(60):
    hold = budget.take("gemini-2.5-flash", 40)
    if isinstance(hold, Hold):
        taken += 1
        hold.settle("gemini-2.5-flash", Counts(input=7))
print(taken)
"""
_DIES = """
import os, signal, sys
from pathlib import Path
from geminids.spending.daily_budget import DailyBudget
from geminids.spending.budget import Limits
DailyBudget(Path(sys.argv[1]), Limits(requests=3)).take("gemini-2.5-flash", 40)
os.kill(os.getpid(), signal.SIGKILL)
"""


class _Clock:
    def __init__(self, now: float = _NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def _budget(folder: Path, clock: _Clock | None = None, **limits: int) -> DailyBudget:
    return DailyBudget(folder / "spent", Limits(**limits), clock=clock or _Clock())


def _taken(budget: DailyBudget, size: int = 400) -> Hold:
    hold = budget.take(_MODEL, size)
    assert isinstance(hold, Hold), hold
    return hold


def test_eight_processes_take_exactly_a_hundred(tmp_path: Path) -> None:
    """480 tries at once in 8 processes, room for 100: one hundred, and the sums are right."""
    hammers = [
        subprocess.Popen(
            [sys.executable, "-c", _HAMMER, str(tmp_path / "spent"), str(tmp_path / "go")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for hammer in hammers:
        assert hammer.stdout is not None and hammer.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    taken = [int(hammer.communicate(timeout=60)[0]) for hammer in hammers]
    assert sum(taken) == 100
    # The children have the real clock.
    assert DailyBudget(tmp_path / "spent", Limits()).spent == Spending(requests=100, tokens=700)


def test_a_killed_process_has_spent_what_it_held(tmp_path: Path) -> None:
    """Its request had left: one of three is gone, and the others can be had."""
    gone = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path / "spent")], check=False, timeout=60)
    assert gone.returncode == -signal.SIGKILL
    budget = DailyBudget(tmp_path / "spent", Limits(requests=3))
    assert budget.spent == Spending(requests=1, tokens=10)
    assert [type(budget.take(_MODEL, 4)) for _ in range(3)] == [Hold, Hold, BudgetRefusal]


def test_what_was_held_becomes_what_was_spent(tmp_path: Path) -> None:
    """An answer, a failure, and a request that never left."""
    budget = _budget(tmp_path, requests=9)
    _taken(budget).settle(_MODEL, Counts(input=90, output=200))
    _taken(budget).settle(_MODEL, None)
    _taken(budget).settle(None, None)
    assert budget.spent == Spending(requests=2, tokens=290)


def test_dollars_of_several_processes_add_up(tmp_path: Path) -> None:
    """Exactly: two budgets on one file, a third of a cent each."""
    first, second = (
        DailyBudget(tmp_path, Limits(dollars=1), lambda model, counts: Decimal("0.00333"), clock=_Clock())
        for _ in range(2)
    )
    for budget in (first, second, first):
        _taken(budget).settle(_MODEL, Counts(input=1))
    assert second.spent.dollars == Decimal("0.00999")


def test_the_refusal_names_the_day(tmp_path: Path) -> None:
    """Whose budget it is, and what is spent of what."""
    budget = _budget(tmp_path, requests=1)
    _taken(budget)
    refusal = budget.take(_MODEL, 4)
    assert isinstance(refusal, BudgetRefusal) and refusal.kind == "over_budget"
    assert (
        refusal.message.startswith("another request would exceed the budget of the day")
        and "1 of 1 requests" in refusal.message
    )


def test_a_new_day_has_a_new_budget(tmp_path: Path) -> None:
    """By the local date; what left before midnight is settled on the day on which it left."""
    clock = _Clock(time.mktime((2026, 11, 16, 23, 59, 59, 0, 0, -1)))
    budget = _budget(tmp_path, clock, requests=1)
    late = _taken(budget)
    clock.now += 2
    _taken(budget).settle(_MODEL, None)
    late.settle(_MODEL, Counts(input=5))
    assert budget.spent == Spending(requests=1)
    clock.now -= 2
    assert budget.spent == Spending(requests=1, tokens=5)
    assert sorted(file.name for file in (tmp_path / "spent").iterdir()) == [
        "2026-11-16.jsonl",
        "2026-11-17.jsonl",
    ]


@pytest.mark.parametrize(
    "torn", [b'{"at":"12:00:00","pid":1,"wh', b"\xff\xfe", b"null", b"{}\n", b"\n\n", b"x" * 9000]
)
def test_a_torn_line_loses_nothing_else(tmp_path: Path, torn: bytes) -> None:
    """A crash in the middle of a line: what was spent before is known, and what comes after is too."""
    budget = _budget(tmp_path, requests=3)
    _taken(budget).settle(_MODEL, Counts(input=5))
    with budget.file.open("ab") as file:
        file.write(torn)
    assert budget.spent == Spending(requests=1, tokens=5)
    _taken(budget).settle(_MODEL, Counts(input=6))
    assert budget.spent == Spending(requests=2, tokens=11)


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    """0600 in a folder of 0700, whatever the umask is."""
    before = os.umask(0)
    try:
        budget = _budget(tmp_path, requests=3)
        _taken(budget)
    finally:
        os.umask(before)
    assert stat.S_IMODE(budget.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(budget.file.parent.stat().st_mode) == 0o700


def test_a_ledger_that_cannot_be_kept_stops_the_run(tmp_path: Path) -> None:
    """No hope in place of a wall: nothing leaves, and the file is named."""
    budget = _budget(tmp_path, requests=3)
    budget.file.mkdir(parents=True)
    refusal = budget.take(_MODEL, 4)
    assert isinstance(refusal, BudgetRefusal) and refusal.kind == "unwritable"
    assert str(budget.file) in refusal.message


def test_a_forked_process_counts_too(tmp_path: Path) -> None:
    """A budget that was there before the fork serves both."""
    budget = _budget(tmp_path, requests=9)
    _taken(budget)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(budget.take(_MODEL, 4), Hold) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert budget.spent.requests == 2


def test_a_long_day_is_as_quick_as_a_short_one(tmp_path: Path) -> None:
    """With 10,000 lines, taking and settling is well below a millisecond: only the end of the file is read."""
    budget = _budget(tmp_path, requests=10**6)
    for _ in range(10):
        _taken(budget).settle(_MODEL, Counts(input=5))
    line = budget.file.read_bytes().splitlines(keepends=True)[-1]
    with budget.file.open("ab") as file:
        file.write(line * 10_000)
    took = []
    for _ in range(50):
        begun = time.perf_counter()
        _taken(budget).settle(_MODEL, Counts(input=5))
        took.append(time.perf_counter() - begun)
    assert sorted(took)[25] < 0.001
