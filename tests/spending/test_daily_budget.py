"""Tests of the daily budget that all processes of a user share."""

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
_TAKE_MANY = """
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
_TAKE_AND_DIE = """
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


def _take(budget: DailyBudget, size: int = 400) -> Hold:
    hold = budget.take(_MODEL, size)
    assert isinstance(hold, Hold), hold
    return hold


def test_parallel_processes_never_exceed_the_budget(tmp_path: Path) -> None:
    """If eight processes try 480 requests, exactly 100 are allowed, and the sums are correct."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKE_MANY, str(tmp_path / "spent"), str(tmp_path / "go")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    taken = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(taken) == 100
    # The child processes use the real clock, so this budget does, too.
    assert DailyBudget(tmp_path / "spent", Limits()).spent == Spending(requests=100, tokens=700)


def test_killed_process_has_spent_its_reservation(tmp_path: Path) -> None:
    """The reserved request of a killed process counts as spent. The rest stays available."""
    completed = subprocess.run(
        [sys.executable, "-c", _TAKE_AND_DIE, str(tmp_path / "spent")], check=False, timeout=60
    )
    assert completed.returncode == -signal.SIGKILL
    budget = DailyBudget(tmp_path / "spent", Limits(requests=3))
    assert budget.spent == Spending(requests=1, tokens=10)
    assert [type(budget.take(_MODEL, 4)) for _ in range(3)] == [Hold, Hold, BudgetRefusal]


def test_settling_replaces_the_reservation(tmp_path: Path) -> None:
    """An answer, a failed request and an unsent request are charged correctly."""
    budget = _budget(tmp_path, requests=9)
    _take(budget).settle(_MODEL, Counts(input=90, output=200))
    _take(budget).settle(_MODEL, None)
    _take(budget).settle(None, None)
    assert budget.spent == Spending(requests=2, tokens=290)


def test_dollars_of_several_budgets_add_up(tmp_path: Path) -> None:
    """Dollars of two budgets with the same file add up exactly."""
    first, second = (
        DailyBudget(tmp_path, Limits(dollars=1), lambda model, counts: Decimal("0.00333"), clock=_Clock())
        for _ in range(2)
    )
    for budget in (first, second, first):
        _take(budget).settle(_MODEL, Counts(input=1))
    assert second.spent.dollars == Decimal("0.00999")


def test_refusal_names_the_daily_budget(tmp_path: Path) -> None:
    """The refusal names the budget of the day and the amount that is spent."""
    budget = _budget(tmp_path, requests=1)
    _take(budget)
    refusal = budget.take(_MODEL, 4)
    assert isinstance(refusal, BudgetRefusal) and refusal.kind == "over_budget"
    assert (
        refusal.message.startswith("another request would exceed the budget of the day")
        and "1 of 1 requests" in refusal.message
    )


def test_a_new_day_has_a_new_budget(tmp_path: Path) -> None:
    """A new budget starts at local midnight.
    A request is charged to the day on which it was sent."""
    clock = _Clock(time.mktime((2026, 11, 16, 23, 59, 59, 0, 0, -1)))
    budget = _budget(tmp_path, clock, requests=1)
    hold = _take(budget)
    clock.now += 2
    _take(budget).settle(_MODEL, None)
    hold.settle(_MODEL, Counts(input=5))
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
def test_broken_line_is_ignored(tmp_path: Path, torn: bytes) -> None:
    """A broken line in the file affects neither the entries before it nor those after it."""
    budget = _budget(tmp_path, requests=3)
    _take(budget).settle(_MODEL, Counts(input=5))
    with budget.file.open("ab") as file:
        file.write(torn)
    assert budget.spent == Spending(requests=1, tokens=5)
    _take(budget).settle(_MODEL, Counts(input=6))
    assert budget.spent == Spending(requests=2, tokens=11)


def test_file_is_private(tmp_path: Path) -> None:
    """Only the user can read the file and its folder, whatever the umask is."""
    before = os.umask(0)
    try:
        budget = _budget(tmp_path, requests=3)
        _take(budget)
    finally:
        os.umask(before)
    assert stat.S_IMODE(budget.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(budget.file.parent.stat().st_mode) == 0o700


def test_unwritable_file_refuses_requests(tmp_path: Path) -> None:
    """If the file cannot be written, requests are refused. The message contains the file name."""
    budget = _budget(tmp_path, requests=3)
    budget.file.mkdir(parents=True)
    refusal = budget.take(_MODEL, 4)
    assert isinstance(refusal, BudgetRefusal) and refusal.kind == "unwritable"
    assert str(budget.file) in refusal.message


def test_forked_process_shares_the_budget(tmp_path: Path) -> None:
    """A forked child and its parent share a budget that existed before the fork."""
    budget = _budget(tmp_path, requests=9)
    _take(budget)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(budget.take(_MODEL, 4), Hold) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert budget.spent.requests == 2


def test_long_file_is_not_slow(tmp_path: Path) -> None:
    """With 10,000 lines in the file, taking and settling a request takes less than 1 ms."""
    budget = _budget(tmp_path, requests=10**6)
    for _ in range(10):
        _take(budget).settle(_MODEL, Counts(input=5))
    line = budget.file.read_bytes().splitlines(keepends=True)[-1]
    with budget.file.open("ab") as file:
        file.write(line * 10_000)
    durations = []
    for _ in range(50):
        started = time.perf_counter()
        _take(budget).settle(_MODEL, Counts(input=5))
        durations.append(time.perf_counter() - started)
    assert sorted(durations)[25] < 0.001
