"""Read the CLI's stdout and stderr, and translate them into events.

The CLI writes error reports to files. This module changes the permissions of these files, so that
only the user can read them.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from geminids.events.model import Event, Retry
from geminids.events.translate.stream_json import StreamTranslator, WhyNot
from geminids.gemini.protocol.stderr import StderrNotice, StderrReader
from geminids.gemini.protocol.stream_json import decode_block
from geminids.log import get_logger
from geminids.process.child import Child
from geminids.process.line_framer import LineFramer
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Deadlines, Stopping

if TYPE_CHECKING:
    import anyio


__all__ = ["OnLine", "OnStderr", "OutputCallbacks", "PipeReader", "Reports"]

_log = get_logger("run")

Put = Callable[[list[Event], int], None]
OnLine = Callable[[str, Sequence[Event]], None]
OnStderr = Callable[[str], None]

_LONGEST_STDERR_LINE = 1024 * 1024
# A pipe contains at most a megabyte. More data after the CLI's exit can come only from a process
# that was left running.
_MOST_DRAINED = 1024 * 1024


class OutputCallbacks(NamedTuple):
    """The caller's functions for the output of the CLI. Both receive text with secrets masked.

    `on_line` is called with each line of stdout, without its line end, and with the events of that
    line. `on_stderr` is called with each piece of stderr: one or more lines, with their line ends.
    """

    on_line: OnLine | None = None
    on_stderr: OnStderr | None = None


class PipeReader:
    """Reads stdout and stderr of the CLI to their end, and emits their events.

    `fresh_session` becomes True if the CLI reports that it started a new session instead of
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
        callbacks: OutputCallbacks,
        why_not: WhyNot | None = None,
    ) -> None:
        self._recorder = recorder
        self._redactor = redactor = recorder.redactor
        self._stopping = stopping
        self._deadlines = deadlines
        self._put = put
        self._on_line, self._on_stderr = callbacks
        self._lines = LineFramer(line_limit)
        self._stderr_lines = LineFramer(_LONGEST_STDERR_LINE)
        self._stderr = StderrReader()
        self._reports = Reports(redactor)
        self.stream = StreamTranslator(recorder, redactor, why_not)
        self.fresh_session = False
        self.retried: tuple[StderrNotice, float] | None = None
        """The last retry that the CLI reported on stderr, with its time (monotonic), or None."""

    @property
    def stderr_tail(self) -> str:
        return self._stderr.tail

    async def read_stdout(self, child: Child, done: anyio.Event) -> None:
        """Read stdout to its end, then set `done`."""
        while chunk := await child.read_stdout():
            self._deadlines.note_output(stdout=True)
            self._take_stdout(chunk)
        self._deadlines.closed()
        done.set()

    async def read_stderr(self, child: Child, done: anyio.Event, on_chunk: Callable[[], None]) -> None:
        """Read stderr to its end, then set `done`.

        `on_chunk` is called after each chunk has been parsed.
        """
        while chunk := await child.read_stderr():
            self._deadlines.note_output(stdout=False)
            self._take_stderr(self._stderr_lines.feed(chunk))
            on_chunk()
        done.set()

    def drain(self, child: Child) -> None:
        """Read the data that is still in the pipes, and emit its events.

        This is needed because a busy event loop may not have read all data before the CLI exited.
        """
        for read, take in (
            (child.stdout_now, self._take_stdout),
            (child.stderr_now, lambda chunk: self._take_stderr(self._stderr_lines.feed(chunk))),
        ):
            left = _MOST_DRAINED
            while left > 0 and (chunk := read()):
                left -= len(chunk)
                take(chunk)

    def finish(self) -> None:
        """Emit the last events, and make the CLI's error reports private.

        The last events are those of an unfinished line, of stderr, and of interrupted tool calls.
        """
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
        """Translate a block of whole lines, and emit the events."""
        dropped = self._too_long(self._lines, "a line")
        events = self.stream.translate(decode_block(block)) if self._on_line is None else self._by_line(block)
        self._deadlines.busy = self.stream.tools_running
        if self.stream.result is not None:
            self._deadlines.closed()
        self._put([*dropped, *events] if dropped else events, len(block))

    def _by_line(self, block: bytes) -> list[Event]:
        """Translate a block line by line, and call `on_line` with each line and its events.

        This is slower than the translation of a whole block.
        """
        assert self._on_line is not None
        all_events: list[Event] = []
        for line in block.splitlines():
            events = self.stream.translate(decode_block(line))
            all_events += events
            try:
                self._on_line(self._redactor.block(line).decode("utf-8", "replace"), events)
            except Exception as error:
                # The caller's function has a bug: report it once, and continue without it.
                _log.warning("on_line failed and is not called again", error=error)
                self._on_line = _ignore_line
                all_events.append(self._callback_failed("on_line", error))
        return all_events

    def _callback_failed(self, name: str, error: Exception) -> Event:
        """Return a notice that the caller's function `name` raised an error.

        The notice says that this function is not called again.
        """
        text = f"{name} failed and is not called again: {type(error).__name__}: {error}"
        return self._recorder.notice("error", name, self._redactor.text(text))

    def _take_stderr(self, block: bytes) -> None:
        self._put(self._too_long(self._stderr_lines, "a line on stderr"), 0)
        if block:
            text = self._redactor.block(block).decode("utf-8", "replace")
            if self._on_stderr is not None:
                try:
                    self._on_stderr(text)
                except Exception as error:
                    _log.warning("on_stderr failed and is not called again", error=error)
                    self._on_stderr = None
                    self._put([self._callback_failed("on_stderr", error)], 0)
            self._reports.look_for(text)
            remarks = self._stderr.read(text)
            self._put([self._notice(remark) for remark in remarks if self._is_new(remark)], len(block))
            retries = [remark for remark in remarks if remark.code == "retry"]
            if retries:
                self.retried = retries[-1], time.monotonic()
            self.fresh_session |= any(remark.code == "fresh_session" for remark in remarks)

    def _is_new(self, remark: StderrNotice) -> bool:
        # If there is a gateway, it has already reported each failed request with more details.
        return remark.code != "retry" or not self._recorder.has_gateway

    def _notice(self, remark: StderrNotice) -> Event:
        retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
        # After the gateway has stopped the run, the CLI prints errors about the stop. They are only
        # for debugging, because `Finished` contains the real reason.
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
    """Do nothing. This function replaces the caller's `on_line` function after it has failed."""


_REPORT_PATH = re.compile(r"[Rr]eport available at: (/.*/gemini-client-error-[^/\n]*\.json)")
_REPORT_PREFIX = "gemini-client-error-"
_MOST_REPORTS = 100


class Reports:
    """Collects the files of the CLI's error reports, and makes them private when the run ends."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._paths: dict[str, None] = {}

    def look_for(self, text: str) -> None:
        """Collect the reports whose paths occur in a text from stderr."""
        if "eport available at" in text and len(self._paths) < _MOST_REPORTS:
            self._paths.update(dict.fromkeys(_REPORT_PATH.findall(text)))

    def look_in(self, folder: str, since: float) -> None:
        """Collect the reports in `folder` that were written at or after `since` (Unix seconds).

        This is for a warm process, which serves several prompts. It prints the paths of its reports
        only when it ends, so until then its reports must be found in the folder.
        """
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_report = entry.name.startswith(_REPORT_PREFIX) and entry.name.endswith(".json")
                    if is_report and entry.stat(follow_symlinks=False).st_mtime >= since:
                        self._paths[entry.path] = None
        except OSError:
            return

    def seal(self) -> None:
        """Make the collected reports readable only for the user, and mask secrets in them."""
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
            return  # not a report of the CLI: tools also write to stderr, and can print any path
        os.fchmod(fd, 0o600)
        content = os.pread(fd, status.st_size, 0)
        redacted = self._redactor.block(content)
        if redacted != content:
            os.pwrite(fd, redacted, 0)
            os.ftruncate(fd, len(redacted))
