"""The daily budget that all processes of a user share, stored in one file a day."""

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

_TAIL_SIZE = 4096
# Seconds. A process holds the lock for microseconds, but one that is suspended while it holds it
# must not block us.
_LOCK_TIMEOUT = 5.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file: an amount that was reserved, spent or released, and the sum of the day.

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
    """The budget of all processes of a user for one day (local date). Safe from any thread and
    process.

    The reserved amount of a killed process stays spent, because its request was sent.
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
        """`is_recorded`: write each request to the file. If false, the limits apply, but the
        process that forwards the requests writes them."""
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
        """The sum of the day so far, including amounts reserved for requests in flight."""
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
        """Write the true cost to the file of the day on which the request was sent."""
        try:
            with self._lock, _locked(file) as fd:
                before, whole = _last_sum(fd)
                what = "spent" if spent.requests else "given back"
                self._write(fd, whole, what, model, spent, before - amount + spent)
        except OSError as error:
            # The reserved amount stays spent. The next request is refused, because it cannot be
            # written either.
            _log.warning("the file of the daily budget cannot be written", error=error)

    def _write(
        self, fd: int, whole: bool, what: str, model: str, spending: Spending, total: Spending
    ) -> None:
        entry = Entry(
            at=time.strftime("%H:%M:%S", time.localtime(self._clock())),
            pid=os.getpid(),
            what=what,
            model=model,
            requests=spending.requests,
            tokens=spending.tokens,
            dollars=spending.dollars,
            sum=total,
        )
        # End a line that another process could not finish; readers skip it.
        line = (b"" if whole else b"\n") + msgspec.json.encode(entry) + b"\n"
        if os.pwrite(fd, line, os.fstat(fd).st_size) != len(line):
            raise OSError("the disk is full")


def _not_recorded(spent: Spending) -> None:
    """Nothing was reserved, so there is nothing to settle."""


def _last_sum(fd: int) -> tuple[Spending, bool]:
    """The sum in the last complete line, and whether the file ends with a complete line."""
    size = os.fstat(fd).st_size
    tail = _TAIL_SIZE
    whole = True
    while size:
        begin = max(size - tail, 0)
        lines = os.pread(fd, size - begin, begin).split(b"\n")
        whole = lines[-1] == b""
        # The first line may be cut, because we start to read in the middle. The last item has no
        # newline.
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
    """Lock the file and yield its descriptor."""
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
        kind="unwritable",
        message=f"the file of the daily budget cannot be written: {file}: {error.strerror or error}",
        hint="Make the file writable, or run without a daily budget.",
    )
