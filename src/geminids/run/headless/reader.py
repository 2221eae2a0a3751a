"""Read the CLI's stdout and stderr: bytes become events, and the error reports that it leaves are made private."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geminids.events.model import Event, Retry
from geminids.events.translate.stream_json import StreamTranslator, WhyNot
from geminids.gemini.protocol.stderr import Remark, StderrReader
from geminids.gemini.protocol.stream_json import decode_block
from geminids.log import get_logger
from geminids.process.child import Child
from geminids.process.line_framer import LineFramer
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Deadlines, Stopping

if TYPE_CHECKING:
    import anyio


__all__ = ["OnLine", "Reading", "Reports"]

_log = get_logger("run")

Put = Callable[[list[Event], int], None]
OnLine = Callable[[str, Sequence[Event]], None]

_LONGEST_STDERR_LINE = 1024 * 1024
# A pipe of ours holds a megabyte; what a process that was kept says after that is not the CLI's.
_MOST_DRAINED = 1024 * 1024


class Reading:
    """Reads both pipes to their end, tells the deadlines what it hears, and puts out events.

    `fresh_session` turns true where the CLI says that it has begun a new session instead of resuming one.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        deadlines: Deadlines,
        stopping: Stopping,
        put: Put,
        *,
        line_limit: int,
        on_line: OnLine | None,
        why_not: WhyNot | None = None,
    ) -> None:
        self._recorder = recorder
        self._redactor = redactor = recorder.redactor
        self._stopping = stopping
        self._deadlines = deadlines
        self._put = put
        self._on_line = on_line
        self._lines = LineFramer(line_limit)
        self._stderr_lines = LineFramer(_LONGEST_STDERR_LINE)
        self._stderr = StderrReader()
        self._reports = Reports(redactor)
        self.stream = StreamTranslator(recorder, redactor, why_not)
        self.fresh_session = False
        self.retried: tuple[Remark, float] | None = None
        """The last retry that stderr told of, and when (monotonic)."""

    @property
    def stderr_tail(self) -> str:
        return self._stderr.tail

    async def read_stdout(self, child: Child, done: anyio.Event) -> None:
        import anyio

        while chunk := await child.read_stdout():
            self._deadlines.heard(stdout=True)
            self._take_stdout(chunk)
            await anyio.lowlevel.checkpoint()
        self._deadlines.closed()
        done.set()

    async def read_stderr(self, child: Child, done: anyio.Event, heard: Callable[[], None]) -> None:
        """`heard` is called after each chunk, when `fresh_session` says what it said."""
        import anyio

        while chunk := await child.read_stderr():
            self._deadlines.heard(stdout=False)
            self._take_stderr(self._stderr_lines.feed(chunk))
            heard()
            await anyio.lowlevel.checkpoint()
        done.set()

    def drain(self, child: Child) -> None:
        """What the pipes hold when their readers are gone: on a busy event loop they may have come too late."""
        for read, take in (
            (child.stdout_now, self._take_stdout),
            (child.stderr_now, lambda chunk: self._take_stderr(self._stderr_lines.feed(chunk))),
        ):
            left = _MOST_DRAINED
            while left > 0 and (chunk := read()):
                left -= len(chunk)
                take(chunk)

    def finish(self) -> None:
        """An unfinished last line, what was held back, and the tools that were cut off."""
        rest = self._lines.rest()
        if rest.strip() or self._lines.dropped:
            self._take(rest)
        self._take_stderr(self._stderr_lines.rest())
        self._put([self._told(remark) for remark in self._stderr.finish()], 0)
        self._put(self.stream.finish(), 0)
        self._reports.seal()

    def _take_stdout(self, chunk: bytes) -> None:
        block = self._lines.feed(chunk)
        if block or self._lines.dropped:
            self._take(block)

    def _take(self, block: bytes) -> None:
        """Whole lines."""
        dropped = self._too_long(self._lines, "a line")
        events = self.stream.translate(decode_block(block)) if self._on_line is None else self._by_line(block)
        self._deadlines.busy = self.stream.tools_running
        if self.stream.result is not None:
            self._deadlines.closed()
        self._put([*dropped, *events] if dropped else events, len(block))

    def _by_line(self, block: bytes) -> list[Event]:
        """Line by line, which is slower: whoever asked for it gets each line with the events that it became."""
        assert self._on_line is not None
        found: list[Event] = []
        for line in block.splitlines():
            events = self.stream.translate(decode_block(line))
            found += events
            try:
                self._on_line(self._redactor.block(line).decode("utf-8", "replace"), events)
            except Exception as error:
                # The caller's mistake, told once; the run goes on without it.
                _log.warning("on_line failed and is not called again", error=error)
                self._on_line = _nobody
                what = self._redactor.text(
                    f"on_line failed and is not called again: {type(error).__name__}: {error}"
                )
                found.append(self._recorder.notice("error", "on_line", what))
        return found

    def _take_stderr(self, block: bytes) -> None:
        self._put(self._too_long(self._stderr_lines, "a line on stderr"), 0)
        if block:
            text = self._redactor.block(block).decode("utf-8", "replace")
            self._reports.look_for(text)
            remarks = self._stderr.read(text)
            self._put([self._told(remark) for remark in remarks if self._is_news(remark)], len(block))
            self.retried = next(
                ((one, time.monotonic()) for one in reversed(remarks) if one.code == "retry"), self.retried
            )
            self.fresh_session |= any(remark.code == "fresh_session" for remark in remarks)

    def _is_news(self, remark: Remark) -> bool:
        # A gateway has told each failed request already, with more about it.
        return remark.code != "retry" or not self._recorder.has_gateway

    def _told(self, remark: Remark) -> Event:
        retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
        # Once the gateway has stopped the run, the CLI reports its own view of that. `Finished` has the reason.
        stop = self._stopping.reason
        level = "debug" if stop is not None and stop.kind == "gateway" else remark.level
        return self._recorder.notice(level, remark.code, remark.message, retry)

    def _too_long(self, lines: LineFramer, what: str) -> list[Event]:
        sizes, lines.dropped = lines.dropped, []
        text = f"bytes was dropped (limit {lines.limit:,})"
        return [
            self._recorder.notice("warning", "line_too_long", f"{what} of {size:,} {text}") for size in sizes
        ]


def _nobody(line: str, events: Sequence[Event]) -> None:
    """Stands in for a callback that failed."""


_NAMED = re.compile(r"[Rr]eport available at: (/.*/gemini-client-error-[^/\n]*\.json)")


_BEGIN = "gemini-client-error-"


_MOST = 100


class Reports:
    """Collects the reports that the CLI names, and seals them when the run is over."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._paths: dict[str, None] = {}

    def look_for(self, text: str) -> None:
        if "eport available at" in text and len(self._paths) < _MOST:
            self._paths.update(dict.fromkeys(_NAMED.findall(text)))

    def look_in(self, folder: str, since: float) -> None:
        """Those of a process that does not name them: a warm one says nothing on stderr before its end."""
        try:
            with os.scandir(folder) as found:
                for one in found:
                    is_report = one.name.startswith(_BEGIN) and one.name.endswith(".json")
                    if is_report and one.stat(follow_symlinks=False).st_mtime >= since:
                        self._paths[one.path] = None
        except OSError:
            return

    def seal(self) -> None:
        for path in self._paths:
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            with os.fdopen(fd, "r+b") as file:
                try:
                    self._seal(file.fileno())
                except OSError:
                    continue

    def _seal(self, fd: int) -> None:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            return  # stderr is the tools' to write to as well: it may name anything
        os.fchmod(fd, 0o600)
        said = os.pread(fd, about.st_size, 0)
        kept = self._redactor.block(said)
        if kept != said:
            os.pwrite(fd, kept, 0)
            os.ftruncate(fd, len(kept))
