"""The budget for one day that all processes of a user share. It is stored in one file per day."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import private_dir
from geminids.log import get_logger
from geminids.spending.budget import (
    BaseBudget,
    BudgetRefusal,
    Limits,
    PriceOf,
    Settle,
    Spending,
    over_budget,
)

__all__ = ["BudgetEntry", "DailyBudget"]

_log = get_logger("spending")

_TAIL_SIZE = 4096
# Seconds to wait for the lock. A process needs the lock only for microseconds, but a process that
# is suspended while it has the lock must not block us.
_LOCK_TIMEOUT = 5.0


class BudgetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file of a daily budget: a change of the day's total, and the new total.

    `what` is `held` (the minimum cost of a request was reserved), `spent` (the true cost of the
    request is known) or `given back` (the request was not sent). `at` is the time of day. `pid` is
    the process that wrote the line. `requests`, `tokens` and `dollars` are the reserved or the true
    cost of the request (0 if it was not sent). `sum` is the total after this line. It is stored in
    each line so that only the last line has to be read.
    """

    at: str
    pid: int
    what: str
    model: str
    requests: int
    tokens: int
    dollars: Decimal
    sum: Spending


_decoder = msgspec.json.Decoder(BudgetEntry)


class DailyBudget(BaseBudget):
    """The budget of all processes of a user for one day (local date). Several threads and processes
    can use it at the same time.

    If a process is killed during a request, the cost that it reserved for this request stays in the
    day's total, because the API may charge for the request.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        price: PriceOf | None = None,
        *,
        is_recorded: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the budget. Its files are in `folder`, one for each day.

        If `is_recorded` is true, the cost of each request is written to the file. If it is false,
        the limits apply, but nothing is written. Use false for a run inside another run: its
        requests go through the gateway of the outer run, and the process of the outer run writes
        their cost.

        `clock` returns the current time in seconds, like `time.time`.
        """
        super().__init__("the day", limits, price)
        self._folder = folder
        self._is_recorded = is_recorded
        self._clock = clock

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def file(self) -> Path:
        """The path of today's file."""
        return self._folder / time.strftime("%Y-%m-%d.jsonl", time.localtime(self._clock()))

    @property
    def spent(self) -> Spending:
        """The total of today so far. It includes the amounts that are reserved for requests in
        flight. Raises `OSError` if today's file exists but cannot be read.
        """
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Spending()
        try:
            return _last_sum(fd)[0]
        finally:
            os.close(fd)

    def _reserve(self, model: str, amount: Spending) -> Settle | BudgetRefusal:
        file = self.file
        try:
            if not self._is_recorded:
                return over_budget(self.name, self.limits, self.spent, Spending(), amount) or _not_recorded
            with self._lock, _locked(file) as fd:
                spent, whole = _last_sum(fd)
                refusal = over_budget(self.name, self.limits, spent, Spending(), amount)
                if refusal is not None:
                    return refusal
                self._write(fd, whole, "held", model, amount, spent + amount)
        except OSError as error:
            return _cannot_write(file, error)
        return partial(self._settled_in_file, file, model, amount)

    def _settled_in_file(self, file: Path, model: str, amount: Spending, spent: Spending) -> None:
        """Write to `file` that the reserved `amount` is replaced with the true cost `spent`. `file`
        is the file of the day on which the request was sent, even if a new day has begun.
        """
        try:
            with self._lock, _locked(file) as fd:
                before, whole = _last_sum(fd)
                what = "spent" if spent.requests else "given back"
                self._write(fd, whole, what, model, spent, before - amount + spent)
        except OSError as error:
            # The reserved amount stays in the total. If the file still cannot be written, the next
            # request is refused.
            _log.warning("the file of the daily budget cannot be written", error=error)

    def _write(
        self, fd: int, whole: bool, what: str, model: str, spending: Spending, total: Spending
    ) -> None:
        entry = BudgetEntry(
            at=time.strftime("%H:%M:%S", time.localtime(self._clock())),
            pid=os.getpid(),
            what=what,
            model=model,
            requests=spending.requests,
            tokens=spending.tokens,
            dollars=spending.dollars,
            sum=total,
        )
        # If another process left an unfinished line, end that line with a newline. Readers skip it.
        line = (b"" if whole else b"\n") + msgspec.json.encode(entry) + b"\n"
        if os.pwrite(fd, line, os.fstat(fd).st_size) != len(line):
            raise OSError("only a part of the line was written; the disk may be full")


def _not_recorded(spent: Spending) -> None:
    """Do nothing with the true cost of a request. This function is used if `is_recorded` is false:
    the budget then writes nothing to its file, so no cost was reserved.
    """


def _last_sum(fd: int) -> tuple[Spending, bool]:
    """Return the total in the last valid line of the file (0 if there is none), and whether the
    file is empty or ends with a newline.
    """
    size = os.fstat(fd).st_size
    tail = _TAIL_SIZE
    whole = True
    while size:
        begin = max(size - tail, 0)
        lines = os.pread(fd, size - begin, begin).split(b"\n")
        whole = lines[-1] == b""
        # Skip the first item, because we may have started to read in the middle of a line. Skip the
        # last item, because it has no newline.
        for line in reversed(lines[1 if begin else 0 : -1]):
            try:
                return _decoder.decode(line).sum, whole
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
        if begin == 0:
            break
        tail *= 8
    return Spending(), whole


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    """Lock the file during the `with` block, and yield its file descriptor. Raises
    `BlockingIOError` if another process keeps the lock for 5 seconds.
    """
    private_dir(file.parent)
    lock = FileLock.take(file, wait=_LOCK_TIMEOUT)
    if lock is None:
        raise BlockingIOError("another process has locked the file")
    try:
        yield lock.fd
    finally:
        lock.close()


def _cannot_write(file: Path, error: OSError) -> BudgetRefusal:
    return BudgetRefusal(
        kind="unwritable",
        message=f"the file of the daily budget, {file}, cannot be written: {error.strerror or error}",
        hint="Make the file writable, or run without a daily budget.",
    )
