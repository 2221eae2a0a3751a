"""The daily budget: what all processes of a user may spend together, in a file that they share."""

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

__all__ = ["DailyBudget", "Entry"]

_log = get_logger("spending")

_TAIL = 4096
# Seconds. A process holds the lock for microseconds; one that is stopped while it holds it must not block us.
_LOCK_TIMEOUT = 5.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what a request holds, what it cost, or that it was not sent; and the sum of the day.

    The sum includes this line and all lines before it, so only the last line has to be read.
    """

    at: str
    pid: int
    what: str
    model: str
    requests: int
    tokens: int
    dollars: Decimal
    sum: Spending


_decoder = msgspec.json.Decoder(Entry)


class DailyBudget(BaseBudget):
    """What all processes of a user have spent on a day, by the local date. Safe from any thread and process.

    What a process holds when it is killed stays spent, because its request was sent.
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
        """`is_recorded`: write each request to the file. If false, the limits apply, and another process, through
        which the requests go, writes them."""
        super().__init__("the day", limits, price)
        self._folder = folder
        self._is_recorded = is_recorded
        self._clock = clock

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def file(self) -> Path:
        """Today's file."""
        return self._folder / time.strftime("%Y-%m-%d.jsonl", time.localtime(self._clock()))

    @property
    def spent(self) -> Spending:
        """What the day has spent so far, including what is held for requests on their way."""
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Spending()
        try:
            return _last(fd)[0]
        finally:
            os.close(fd)

    def _reserve(self, model: str, amount: Spending) -> Settle | BudgetRefusal:
        file = self.file
        try:
            if not self._is_recorded:
                return over_budget(self.name, self.limits, self.spent, Spending(), amount) or _not_recorded
            with self._lock, _locked(file) as fd:
                spent, whole = _last(fd)
                refusal = over_budget(self.name, self.limits, spent, Spending(), amount)
                if refusal is not None:
                    return refusal
                self._write(fd, whole, "held", model, amount, spent + amount)
        except OSError as error:
            return _cannot_write(file, error)
        return partial(self._corrected, file, model, amount)

    def _corrected(self, file: Path, model: str, amount: Spending, spent: Spending) -> None:
        """Write the true cost to the file of the day on which the request was sent."""
        try:
            with self._lock, _locked(file) as fd:
                before, whole = _last(fd)
                what = "spent" if spent.requests else "given back"
                self._write(fd, whole, what, model, spent, before - amount + spent)
        except OSError as error:
            # What was held stays spent. The next request is refused, because it cannot be written either.
            _log.warning("the day's budget cannot be written", error=error)

    def _write(self, fd: int, whole: bool, what: str, model: str, one: Spending, total: Spending) -> None:
        entry = Entry(
            at=time.strftime("%H:%M:%S", time.localtime(self._clock())),
            pid=os.getpid(),
            what=what,
            model=model,
            requests=one.requests,
            tokens=one.tokens,
            dollars=one.dollars,
            sum=total,
        )
        # End a line that another process could not finish; readers skip it.
        line = (b"" if whole else b"\n") + msgspec.json.encode(entry) + b"\n"
        if os.pwrite(fd, line, os.fstat(fd).st_size) != len(line):
            raise OSError("the disk is full")


def _not_recorded(spent: Spending) -> None:
    """Nothing was held, so there is nothing to settle."""


def _last(fd: int) -> tuple[Spending, bool]:
    """The sum in the last complete line, and whether the file ends with a complete line."""
    size = os.fstat(fd).st_size
    tail = _TAIL
    whole = True
    while size:
        begin = max(size - tail, 0)
        lines = os.pread(fd, size - begin, begin).split(b"\n")
        whole = lines[-1] == b""
        # The first line may be cut by where we began to read; the last one has no newline.
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
    """The descriptor of the file, locked."""
    private_dir(file.parent)
    lock = FileLock.take(file, wait=_LOCK_TIMEOUT)
    if lock is None:
        raise BlockingIOError("another process has locked it")
    try:
        yield lock.fd
    finally:
        lock.close()


def _cannot_write(file: Path, error: OSError) -> BudgetRefusal:
    return BudgetRefusal(
        kind="unkept",
        message=f"the day's budget cannot be kept: {file}: {error.strerror or error}",
        hint="Make the file writable, or run without a budget for the day.",
    )
