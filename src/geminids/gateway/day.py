"""The purse of a day: what all processes of a user may spend together, kept in a file that they share."""

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
from geminids.config.places import private_dir
from geminids.gateway.purse import Limits, PriceOf, Purse, Settle, Spending, over_budget
from geminids.gateway.told import Halt
from geminids.log import get_logger

__all__ = ["DayPurse", "Entry"]

_log = get_logger("gateway")

_TAIL = 4096
# Whoever has the lock needs it for microseconds; a process that was stopped with it must not stop us.
_PATIENCE = 5.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what a request held, what it then cost, or that it never left; and what the day has spent with it.

    Each line has the sums of all lines before it and its own, so that the last one is all that need be read.
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


class DayPurse(Purse):
    """What all processes of a user have spent on a day, by the local date. Safe from any thread and process.

    What a process has held when it is killed stays spent: its request had left.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        price: PriceOf | None = None,
        *,
        books: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`books`: write each request down. Without it the limits hold, and another process, through which the
        requests go, writes them down."""
        super().__init__("the day", limits, price)
        self._folder = folder
        self._books = books
        self._clock = clock

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def file(self) -> Path:
        """The file of today."""
        return self._folder / time.strftime("%Y-%m-%d.jsonl", time.localtime(self._clock()))

    @property
    def spent(self) -> Spending:
        """What the day has spent so far, with what is held by requests on their way."""
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Spending()
        try:
            return _last(fd)[0]
        finally:
            os.close(fd)

    def _reserve(self, model: str, wanted: Spending) -> Settle | Halt:
        file = self.file
        try:
            if not self._books:
                return over_budget(self.whose, self.limits, self.spent, Spending(), wanted) or _not_booked
            with self._lock, _locked(file) as fd:
                spent, whole = _last(fd)
                halt = over_budget(self.whose, self.limits, spent, Spending(), wanted)
                if halt is not None:
                    return halt
                self._write(fd, whole, "held", model, wanted, spent + wanted)
        except OSError as error:
            return _unkept(file, error)
        return partial(self._corrected, file, model, wanted)

    def _corrected(self, file: Path, model: str, wanted: Spending, spent: Spending) -> None:
        """In the file of the day on which the request has left, whatever day it is now."""
        try:
            with self._lock, _locked(file) as fd:
                before, whole = _last(fd)
                what = "spent" if spent.requests else "given back"
                self._write(fd, whole, what, model, spent, before - wanted + spent)
        except OSError as error:
            # What was held stays spent. The next request reports it, since it cannot be written either.
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
        # A line that somebody could not finish is closed, and passed over from then on.
        line = (b"" if whole else b"\n") + msgspec.json.encode(entry) + b"\n"
        if os.pwrite(fd, line, os.fstat(fd).st_size) != len(line):
            raise OSError("the disk is full")


def _not_booked(spent: Spending) -> None:
    """Nothing was held, so nothing is settled."""


def _last(fd: int) -> tuple[Spending, bool]:
    """The sums of the last line that is whole, and whether the file ends with a whole line."""
    size = os.fstat(fd).st_size
    tail = _TAIL
    whole = True
    while size:
        begin = max(size - tail, 0)
        lines = os.pread(fd, size - begin, begin).split(b"\n")
        whole = lines[-1] == b""
        # The first may be cut by where we began to read; the last has no end of its own.
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
    """The file, open and for us alone."""
    private_dir(file.parent)
    lock = FileLock.take(file, wait=_PATIENCE)
    if lock is None:
        raise BlockingIOError("another process has locked it")
    try:
        yield lock.fd
    finally:
        lock.close()


def _unkept(file: Path, error: OSError) -> Halt:
    return Halt(
        kind="unkept",
        message=f"the day's budget cannot be kept: {file}: {error.strerror or error}",
        hint="Make the file writable, or run without a budget for the day.",
    )
