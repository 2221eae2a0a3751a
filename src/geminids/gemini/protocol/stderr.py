"""What the CLI says on stderr, line by line: retries, warnings, and the noise that is only kept."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

import msgspec

__all__ = ["Remark", "StderrReader"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# core/src/utils/retry.ts: "Attempt N failed[ with status S][: what the API said, maybe in lines]. " and then
# either "Retrying …" or "Max attempts reached". Only that end of the remark says which it is.
_ATTEMPT = re.compile(r"Attempt (\d+) failed(?: with status (\d{3})| with (429) error)?")
_AGAIN = re.compile(r"\. Retrying(?: after (\d+)ms)?")
_GAVE_UP = "Max attempts reached"
_MOST_LINES_OF_A_REMARK = 20
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
_MOST_REMARKS = 200
_TAIL_BYTES = 64 * 1024
_LONGEST = 2000


class Remark(msgspec.Struct, frozen=True):
    """One line that is worth a notice; `attempt`, `http_status` and the wait before the next one for a retry."""

    level: Literal["debug", "info", "warning", "error"]
    code: str
    message: str
    attempt: int | None = None
    http_status: int | None = None
    next_s: float | None = None


class StderrReader:
    """Reads lines, keeps a bounded tail, and makes remarks: all that are known, 200 of the rest."""

    def __init__(self) -> None:
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._told = 0
        self._untold = 0
        self._attempt: list[str] = []

    @property
    def tail(self) -> str:
        """The end of what was said, colours taken out."""
        return "\n".join(self._tail)

    def read(self, text: str) -> list[Remark]:
        """Take whole lines; return what is worth saying now."""
        remarks = []
        for raw in text.splitlines():
            line = _ANSI.sub("", raw).rstrip()
            if not line:
                continue
            self._keep(line[: _TAIL_BYTES // 4])
            for remark in self._remarks(line):
                if remark.code == "stderr":
                    if self._told >= _MOST_REMARKS:
                        self._untold += 1
                        continue
                    self._told += 1
                remarks.append(remark)
        return remarks

    def finish(self) -> list[Remark]:
        """An attempt whose remark had no end, and a last word where lines were only kept, not told."""
        remarks = self._end_attempt()
        if self._untold:
            text = f"{self._untold} more lines on stderr; the last of them are in the failure's stderr_tail"
            remarks.append(Remark("info", "stderr_more", text))
        return remarks

    def _remarks(self, line: str) -> list[Remark]:
        """The remark of this line; an attempt is held back until it is known what became of it."""
        begins = _ATTEMPT.match(line) is not None
        if not begins and not self._attempt:
            return [remark_of(line)]
        before = self._end_attempt() if begins else []
        self._attempt.append(line)
        if _AGAIN.search(line) or _GAVE_UP in line or len(self._attempt) >= _MOST_LINES_OF_A_REMARK:
            return before + self._end_attempt()
        return before

    def _end_attempt(self) -> list[Remark]:
        lines, self._attempt = self._attempt, []
        return [remark_of("\n".join(lines))] if lines else []

    def _keep(self, line: str) -> None:
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _TAIL_BYTES and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft()) + 1


def remark_of(text: str) -> Remark:
    """One remark, without its colours: mostly one line."""
    attempt = _ATTEMPT.match(text)
    if attempt:
        return _about_attempt(attempt, text)
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    for part, level, code in _KNOWN:
        if part in text:
            return Remark(level, code, shown)  # type: ignore[arg-type]
    return Remark("debug", "stderr", shown)


def _about_attempt(attempt: re.Match[str], text: str) -> Remark:
    number = int(attempt[1])
    known = attempt[2] or attempt[3]
    status = int(known) if known else _status_in(text[attempt.end() :])
    failed = f"attempt {number} failed ({f'HTTP {status}' if status else 'no answer'})"
    again = _AGAIN.search(text)
    if again:
        wait = int(again[1]) / 1000 if again[1] else None
        when = "" if wait is None else f" in {wait:.1f} s"
        return Remark("warning", "retry", f"{failed}; trying again{when}", number, status, wait)
    if _GAVE_UP in text:
        return Remark("error", "gave_up", f"{failed}; the CLI gave up", number, status)
    return Remark("warning", "attempt", failed, number, status)


def _status_in(text: str) -> int | None:
    """The quota path names no status; RESOURCE_EXHAUSTED is 429 by definition, UNAVAILABLE 503."""
    code = _CODE.search(text)
    if code:
        return int(code[1])
    if _QUOTA.search(text):
        return 429
    return 503 if _BUSY.search(text) else None
