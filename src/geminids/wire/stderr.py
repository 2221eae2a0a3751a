"""What the CLI says on stderr, line by line: retries, warnings, and the noise that is only kept."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

import msgspec

__all__ = ["Remark", "StderrReader"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# core/src/utils/retry.ts: logRetryAttempt, and the two lines of the quota path.
_RETRY = re.compile(r"Attempt (\d+) failed(?: with status (\d{3})| with (429|5xx) error)?[^.:]*\. Retrying")
_RETRY_TOLD = re.compile(r"Attempt (\d+) failed: (.*)")
_GAVE_UP = "Max attempts reached"
_CODE = re.compile(r'"code":\s*(\d{3})')
_QUOTA = re.compile(r"exhausted|quota|rate.?limit", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|unavailable", re.IGNORECASE)

_KNOWN: tuple[tuple[str, str, str], ...] = (
    ("Ripgrep is not available", "debug", "ripgrep"),
    ("YOLO mode is enabled", "debug", "yolo"),
    ("No previous sessions found for this project", "warning", "fresh_session"),
    ("Error executing tool", "info", "tool_error"),
    ("Error when talking to Gemini API", "warning", "api_error"),
    ("Approval mode overridden", "warning", "approval"),
    ("Security Warning", "warning", "security"),
    ("Warning:", "info", "warning"),
)
_MOST_REMARKS = 200
_TAIL_BYTES = 64 * 1024
_LONGEST = 2000


class Remark(msgspec.Struct, frozen=True):
    """One line that is worth a notice; `attempt` and `http_status` for a retry."""

    level: Literal["debug", "info", "warning", "error"]
    code: str
    message: str
    attempt: int | None = None
    http_status: int | None = None


class StderrReader:
    """Reads lines, keeps a bounded tail, and makes remarks: all that are known, 200 of the rest."""

    def __init__(self) -> None:
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._told = 0
        self._untold = 0

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
            remark = remark_of(line)
            if remark.code == "stderr":
                if self._told >= _MOST_REMARKS:
                    self._untold += 1
                    continue
                self._told += 1
            remarks.append(remark)
        return remarks

    def dropped(self, size: int) -> Remark:
        """A line that was too long to be read at all."""
        return Remark("warning", "line_too_long", f"a line of {size:,} bytes on stderr was dropped")

    def finish(self) -> list[Remark]:
        """A last remark where lines were only kept, not told."""
        if not self._untold:
            return []
        text = f"{self._untold} more lines on stderr; the last of them are in the failure's stderr_tail"
        return [Remark("info", "stderr_more", text)]

    def _keep(self, line: str) -> None:
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _TAIL_BYTES and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft()) + 1


def remark_of(line: str) -> Remark:
    """One line, without its colours."""
    if line.startswith("Attempt "):
        found = _retry(line)
        if found is not None:
            return found
    shown = line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
    for text, level, code in _KNOWN:
        if text in line:
            return Remark(level, code, shown)  # type: ignore[arg-type]
    return Remark("debug", "stderr", shown)


def _retry(line: str) -> Remark | None:
    plain = _RETRY.match(line)
    if plain:
        attempt, status = int(plain[1]), plain[2] or plain[3]
        return _trying_again(attempt, int(status) if status and status.isdecimal() else None)
    told = _RETRY_TOLD.match(line)
    if not told:
        return None
    attempt, status_code = int(told[1]), _status_in(told[2])
    if _GAVE_UP in line:
        after = f" (HTTP {status_code})" if status_code else ""
        return Remark("error", "gave_up", f"gave up after attempt {attempt}{after}", attempt, status_code)
    return _trying_again(attempt, status_code)


def _trying_again(attempt: int, status: int | None) -> Remark:
    why = f"HTTP {status}" if status else "no answer"
    return Remark("warning", "retry", f"attempt {attempt} failed ({why}); trying again", attempt, status)


def _status_in(text: str) -> int | None:
    """The quota path names no status; RESOURCE_EXHAUSTED is 429 by definition, UNAVAILABLE 503."""
    code = _CODE.search(text)
    if code:
        return int(code[1])
    if _QUOTA.search(text):
        return 429
    return 503 if _BUSY.search(text) else None
