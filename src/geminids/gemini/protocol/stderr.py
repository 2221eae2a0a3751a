"""Read the CLI's stderr line by line: retries, warnings, and other lines, which are only kept."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

import msgspec

__all__ = ["Remark", "StderrReader"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# core/src/utils/retry.ts: "Attempt N failed[ with status S][: the API's message, in several lines]."
# and then "Retrying …" or "Max attempts reached". Only this end shows whether the CLI tries again.
_ATTEMPT = re.compile(r"Attempt (\d+) failed(?: with status (\d{3})| with (429) error)?")
_RETRYING = re.compile(r"\. Retrying(?: after (\d+)ms)?")
_GAVE_UP = "Max attempts reached"
_MAX_LINES_PER_ATTEMPT = 20
_CODE = re.compile(r'"code":\s*(\d{3})')
_QUOTA = re.compile(r"exhausted|quota|rate.?limit", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|unavailable", re.IGNORECASE)

_KNOWN: tuple[tuple[str, str, str], ...] = (
    ("Ripgrep is not available", "debug", "ripgrep"),
    ("YOLO mode is enabled", "debug", "yolo"),
    ("Error resuming session", "error", "resume_failed"),
    ("No previous sessions found for this project", "warning", "fresh_session"),
    ("stdin input truncated", "warning", "truncated"),
    ("Error executing tool", "info", "tool_error"),
    ("Error when talking to Gemini API", "warning", "api_error"),
    ("Approval mode overridden", "warning", "approval"),
    ("Security Warning", "warning", "security"),
    ("MCP issues detected", "warning", "mcp"),
    ("Warning:", "info", "warning"),
)
_MAX_PLAIN_REMARKS = 200
_TAIL_BYTES = 64 * 1024
_MAX_TEXT = 2000


class Remark(msgspec.Struct, frozen=True):
    """A line that becomes a notice.

    For a retry: `attempt`, `http_status`, and `next_s`, the seconds until the next attempt.
    """

    level: Literal["debug", "info", "warning", "error"]
    code: str
    message: str
    attempt: int | None = None
    http_status: int | None = None
    next_s: float | None = None


class StderrReader:
    """Keeps a bounded tail and returns remarks: all of known lines, at most 200 of other lines."""

    def __init__(self) -> None:
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._plain_remarks = 0
        self._omitted = 0
        self._attempt: list[str] = []

    @property
    def tail(self) -> str:
        """The last lines of stderr, without colours."""
        return "\n".join(self._tail)

    def read(self, text: str) -> list[Remark]:
        """Read whole lines; return their remarks."""
        remarks = []
        for raw in text.splitlines():
            line = _ANSI.sub("", raw).rstrip()
            if not line:
                continue
            self._keep(line[: _TAIL_BYTES // 4])
            for remark in self._remarks(line):
                if remark.code == "stderr":
                    if self._plain_remarks >= _MAX_PLAIN_REMARKS:
                        self._omitted += 1
                        continue
                    self._plain_remarks += 1
                remarks.append(remark)
        return remarks

    def finish(self) -> list[Remark]:
        """Return the remark of an unfinished attempt, and the number of omitted lines."""
        remarks = self._end_attempt()
        if self._omitted:
            text = f"{self._omitted} more lines on stderr; a failure's stderr_tail has the last of them"
            remarks.append(Remark("info", "stderr_more", text))
        return remarks

    def _remarks(self, line: str) -> list[Remark]:
        """Return the remarks of this line. An attempt is held back until its result is known."""
        starts_attempt = _ATTEMPT.match(line) is not None
        if not starts_attempt and not self._attempt:
            return [remark_of(line)]
        remarks = self._end_attempt() if starts_attempt else []
        self._attempt.append(line)
        if _RETRYING.search(line) or _GAVE_UP in line or len(self._attempt) >= _MAX_LINES_PER_ATTEMPT:
            return remarks + self._end_attempt()
        return remarks

    def _end_attempt(self) -> list[Remark]:
        lines, self._attempt = self._attempt, []
        return [remark_of("\n".join(lines))] if lines else []

    def _keep(self, line: str) -> None:
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _TAIL_BYTES and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft()) + 1


def remark_of(text: str) -> Remark:
    """Return the remark of a text without colours, usually one line."""
    attempt = _ATTEMPT.match(text)
    if attempt:
        return _attempt_remark(attempt, text)
    shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    for part, level, code in _KNOWN:
        if part in text:
            return Remark(level, code, shown)  # type: ignore[arg-type]
    return Remark("debug", "stderr", shown)


def _attempt_remark(attempt: re.Match[str], text: str) -> Remark:
    number = int(attempt[1])
    named_status = attempt[2] or attempt[3]
    status = int(named_status) if named_status else _status_in(text[attempt.end() :])
    failed = f"attempt {number} failed ({f'HTTP {status}' if status else 'no answer'})"
    retrying = _RETRYING.search(text)
    if retrying:
        wait = int(retrying[1]) / 1000 if retrying[1] else None
        when = "" if wait is None else f" in {wait:.1f} s"
        return Remark("warning", "retry", f"{failed}; trying again{when}", number, status, wait)
    if _GAVE_UP in text:
        return Remark("error", "gave_up", f"{failed}; the CLI gave up", number, status)
    return Remark("warning", "attempt", failed, number, status)


def _status_in(text: str) -> int | None:
    """Find the status in the text. RESOURCE_EXHAUSTED is 429 by definition, UNAVAILABLE is 503."""
    code = _CODE.search(text)
    if code:
        return int(code[1])
    if _QUOTA.search(text):
        return 429
    return 503 if _BUSY.search(text) else None
