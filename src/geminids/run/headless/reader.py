"""Read the CLI's stdout and stderr into events, and make the CLI's error report files private."""

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


__all__ = ["OnLine", "PipeReader", "Reports"]

_log = get_logger("run")

Put = Callable[[list[Event], int], None]
OnLine = Callable[[str, Sequence[Event]], None]

_LONGEST_STDERR_LINE = 1024 * 1024
# Our pipes hold a megabyte. Anything beyond that was written by a kept process, not by the CLI.
_MOST_DRAINED = 1024 * 1024


class PipeReader:
    """Reads both pipes to their end, resets the deadlines on output, and emits events.

    `fresh_session` becomes true if the CLI reports that it started a new session instead of
    resuming one.
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
        """The last retry that stderr reported, and when (monotonic)."""

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

    async def read_stderr(self, child: Child, done: anyio.Event, on_chunk: Callable[[], None]) -> None:
        """Read stderr to its end; call `on_chunk` after each chunk has been parsed."""
        import anyio

        while chunk := await child.read_stderr():
            self._deadlines.heard(stdout=False)
            self._take_stderr(self._stderr_lines.feed(chunk))
            on_chunk()
            await anyio.lowlevel.checkpoint()
        done.set()

    def drain(self, child: Child) -> None:
        """Read what is left in the pipes: a busy event loop may have delayed the readers."""
        for read, take in (
            (child.stdout_now, self._take_stdout),
            (child.stderr_now, lambda chunk: self._take_stderr(self._stderr_lines.feed(chunk))),
        ):
            left = _MOST_DRAINED
            while left > 0 and (chunk := read()):
                left -= len(chunk)
                take(chunk)

    def finish(self) -> None:
        """Emit an unfinished last line, remaining remarks, and the end of interrupted tools."""
        rest = self._lines.rest()
        if rest.strip() or self._lines.dropped:
            self._take(rest)
        self._take_stderr(self._stderr_lines.rest())
        self._put([self._notice(remark) for remark in self._stderr.finish()], 0)
        self._put(self.stream.finish(), 0)
        self._reports.seal()

    def _take_stdout(self, chunk: bytes) -> None:
        block = self._lines.feed(chunk)
        if block or self._lines.dropped:
            self._take(block)

    def _take(self, block: bytes) -> None:
        """Translate and emit whole lines."""
        dropped = self._too_long(self._lines, "a line")
        events = self.stream.translate(decode_block(block)) if self._on_line is None else self._by_line(block)
        self._deadlines.busy = self.stream.tools_running
        if self.stream.result is not None:
            self._deadlines.closed()
        self._put([*dropped, *events] if dropped else events, len(block))

    def _by_line(self, block: bytes) -> list[Event]:
        """Translate line by line and call `on_line` with each line and its events.

        Slower than whole blocks.
        """
        assert self._on_line is not None
        all_events: list[Event] = []
        for line in block.splitlines():
            events = self.stream.translate(decode_block(line))
            all_events += events
            try:
                self._on_line(self._redactor.block(line).decode("utf-8", "replace"), events)
            except Exception as error:
                # A bug of the caller: report it once and continue without the callback.
                _log.warning("on_line failed and is not called again", error=error)
                self._on_line = _ignore_line
                text = self._redactor.text(
                    f"on_line failed and is not called again: {type(error).__name__}: {error}"
                )
                all_events.append(self._recorder.notice("error", "on_line", text))
        return all_events

    def _take_stderr(self, block: bytes) -> None:
        self._put(self._too_long(self._stderr_lines, "a line on stderr"), 0)
        if block:
            text = self._redactor.block(block).decode("utf-8", "replace")
            self._reports.look_for(text)
            remarks = self._stderr.read(text)
            self._put([self._notice(remark) for remark in remarks if self._is_news(remark)], len(block))
            retries = [remark for remark in remarks if remark.code == "retry"]
            if retries:
                self.retried = retries[-1], time.monotonic()
            self.fresh_session |= any(remark.code == "fresh_session" for remark in remarks)

    def _is_news(self, remark: Remark) -> bool:
        # The gateway has already reported each failed request, in more detail.
        return remark.code != "retry" or not self._recorder.has_gateway

    def _notice(self, remark: Remark) -> Event:
        retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
        # After the gateway stopped the run, the CLI prints errors about it. `Finished` has the real
        # reason.
        stop = self._stopping.reason
        level = "debug" if stop is not None and stop.kind == "gateway" else remark.level
        return self._recorder.notice(level, remark.code, remark.message, retry)

    def _too_long(self, lines: LineFramer, subject: str) -> list[Event]:
        sizes, lines.dropped = lines.dropped, []
        text = f"bytes was dropped (limit {lines.limit:,})"
        return [
            self._recorder.notice("warning", "line_too_long", f"{subject} of {size:,} {text}")
            for size in sizes
        ]


def _ignore_line(line: str, events: Sequence[Event]) -> None:
    """Replaces a callback that failed."""


_REPORT_PATH = re.compile(r"[Rr]eport available at: (/.*/gemini-client-error-[^/\n]*\.json)")
_REPORT_PREFIX = "gemini-client-error-"
_MOST_REPORTS = 100


class Reports:
    """Collects the error reports that the CLI wrote, and makes them private when the run ends."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._paths: dict[str, None] = {}

    def look_for(self, text: str) -> None:
        """Collect the reports that a text of stderr names."""
        if "eport available at" in text and len(self._paths) < _MOST_REPORTS:
            self._paths.update(dict.fromkeys(_REPORT_PATH.findall(text)))

    def look_in(self, folder: str, since: float) -> None:
        """Collect reports by name and time: a warm process reports them only at its end."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_report = entry.name.startswith(_REPORT_PREFIX) and entry.name.endswith(".json")
                    if is_report and entry.stat(follow_symlinks=False).st_mtime >= since:
                        self._paths[entry.path] = None
        except OSError:
            return

    def seal(self) -> None:
        """Make the reports readable for the user only, and redact secrets in them."""
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
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return  # tools write to stderr too, and can name any path
        os.fchmod(fd, 0o600)
        content = os.pread(fd, status.st_size, 0)
        redacted = self._redactor.block(content)
        if redacted != content:
            os.pwrite(fd, redacted, 0)
            os.ftruncate(fd, len(redacted))
