"""Read the stderr of the CLI: convert its lines to notices, and store the last lines for error
messages.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

import msgspec

__all__ = ["StderrNotice", "StderrReader", "is_noise"]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# The CLI prints "Attempt N failed[ with status S][: message of the API]. Retrying …" (or "Max
# attempts reached"). The message can have several lines, and only the last one shows whether the
# CLI tries again (core/src/utils/retry.ts).
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
# The beginnings of lines that do not help to explain a failure. The CLI also prints these lines in
# runs that succeed.
_NOISE = (
    "Ripgrep is not available",
    "YOLO mode is enabled",
    "Loaded cached credentials",
    "[STARTUP]",
    "The 'metricReader' option is deprecated",  # printed by OpenTelemetry if telemetry is on
)
_MAX_PLAIN_NOTICES = 200
_TAIL_BYTES = 64 * 1024
_MAX_TEXT = 2000


class StderrNotice(msgspec.Struct, frozen=True):
    """A notice that was made from a line on the CLI's stderr.

    If the line is about a failed attempt to send a request, `attempt` is the number of the attempt;
    otherwise None. `next_s` is the number of seconds until the next attempt. It is None if there is
    no next attempt, or if the line does not say when the next attempt starts.
    """

    level: Literal["debug", "info", "warning", "error"]
    code: str
    message: str
    attempt: int | None = None
    http_status: int | None = None
    next_s: float | None = None


class StderrReader:
    """Converts the lines of the CLI's stderr to notices, and stores the last lines in `tail`.

    Each line with a known message becomes a notice. Of all other lines, only the first 200 become
    notices.
    """

    def __init__(self) -> None:
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._plain_notices = 0
        self._omitted = 0
        self._attempt: list[str] = []

    @property
    def tail(self) -> str:
        """The last lines of stderr (up to 64 KB), without color codes."""
        return "\n".join(self._tail)

    def read(self, text: str) -> list[StderrNotice]:
        """Convert a text of complete lines to notices, and return the notices."""
        notices = []
        for raw in text.splitlines():
            line = _ANSI.sub("", raw).rstrip()
            if not line:
                continue
            self._keep(line[: _TAIL_BYTES // 4])
            for notice in self._notices(line):
                if notice.code == "stderr":
                    if self._plain_notices >= _MAX_PLAIN_NOTICES:
                        self._omitted += 1
                        continue
                    self._plain_notices += 1
                notices.append(notice)
        return notices

    def finish(self) -> list[StderrNotice]:
        """Return the notices that remain at the end of stderr.

        There is one notice if the last message about a failed attempt is incomplete. There is
        another notice, with the number of lines, if some lines did not become notices.
        """
        notices = self._end_attempt()
        if self._omitted:
            text = (
                f"{self._omitted} more lines on stderr; "
                "if the run fails, the failure contains the last of them (stderr_tail)"
            )
            notices.append(StderrNotice("info", "stderr_more", text))
        return notices

    def _notices(self, line: str) -> list[StderrNotice]:
        """Return the notices that are complete after this line.

        A message about a failed attempt can have several lines. Its notice is returned after its
        last line, because only this line says whether the CLI tries again.
        """
        starts_attempt = _ATTEMPT.match(line) is not None
        if not starts_attempt and not self._attempt:
            return [notice_of(line)]
        notices = self._end_attempt() if starts_attempt else []
        self._attempt.append(line)
        if _RETRYING.search(line) or _GAVE_UP in line or len(self._attempt) >= _MAX_LINES_PER_ATTEMPT:
            return notices + self._end_attempt()
        return notices

    def _end_attempt(self) -> list[StderrNotice]:
        lines, self._attempt = self._attempt, []
        return [notice_of("\n".join(lines))] if lines else []

    def _keep(self, line: str) -> None:
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > _TAIL_BYTES and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft()) + 1


def is_noise(line: str) -> bool:
    """Return whether a line of stderr is noise: a line that does not help to explain why a run
    failed.

    >>> is_noise("YOLO mode is enabled. All tool calls will be automatically approved.")
    True
    """
    return line.startswith(_NOISE)


def notice_of(text: str) -> StderrNotice:
    """Convert one message on stderr to a notice. `text` is the message without color codes; it is
    usually one line.
    """
    attempt = _ATTEMPT.match(text)
    if attempt:
        return _attempt_notice(attempt, text)
    shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    for part, level, code in _KNOWN:
        if part in text:
            return StderrNotice(level, code, shown)  # type: ignore[arg-type]
    return StderrNotice("debug", "stderr", shown)


def _attempt_notice(attempt: re.Match[str], text: str) -> StderrNotice:
    number = int(attempt[1])
    named_status = attempt[2] or attempt[3]
    status = int(named_status) if named_status else _status_in(text[attempt.end() :])
    failed = f"attempt {number} failed ({f'HTTP {status}' if status else 'no answer'})"
    retrying = _RETRYING.search(text)
    if retrying:
        wait = int(retrying[1]) / 1000 if retrying[1] else None
        when = "" if wait is None else f" in {wait:.1f} s"
        return StderrNotice("warning", "retry", f"{failed}; trying again{when}", number, status, wait)
    if _GAVE_UP in text:
        return StderrNotice("error", "gave_up", f"{failed}; the CLI gave up", number, status)
    return StderrNotice("warning", "attempt", failed, number, status)


def _status_in(text: str) -> int | None:
    """Return the HTTP status in an error message of the API; None if the status is unknown.

    If the message contains no status code, its words are used: a used-up quota means 429, and an
    overloaded server means 503.
    """
    code = _CODE.search(text)
    if code:
        return int(code[1])
    if _QUOTA.search(text):
        return 429
    return 503 if _BUSY.search(text) else None
