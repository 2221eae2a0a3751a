"""The API's errors as the CLI tells them: one message, an exit code that is the status mod 256, a stack."""

from __future__ import annotations

import re

from geminids.outcome import Failure, FailureKind
from geminids.wire.hints import hint_for

__all__ = ["api_failure", "http_status_of"]

_CODE = re.compile(r'"code":\s*(\d{3})\b')
_TOLD = re.compile(r"^\s*(?:cause: \{ )?(?:status|code): (\d{3})\b", re.MULTILINE)
_INNER = re.compile(r'"message":\s*"((?:[^"\\]|\\.)*)"')
_WRAPPED = re.compile(r"\[API Error: (.*?)\]?(?:\n|$)", re.DOTALL)
_AFTER = re.compile(r"(?:retry (?:after|in)) ([\d.]+)\s*s", re.IGNORECASE)
_DELAY = re.compile(r"retryDelayMs: (\d+)")
_BAD_KEY = re.compile(r"API_KEY_INVALID|API key (?:not valid|expired|not found)|pass a valid API key", re.IGNORECASE)
_DAILY = re.compile(r"daily|per ?day|TerminalQuotaError", re.IGNORECASE)
_CAPACITY = re.compile(r"capacity", re.IGNORECASE)
_QUOTA = re.compile(r"RetryableQuotaError|TerminalQuotaError|RESOURCE_EXHAUSTED|Resource exhausted")
_NETWORK = re.compile(
    r"fetch failed|terminated|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|UND_ERR|socket|other side closed|network",
    re.IGNORECASE,
)
_GARBAGE = re.compile(r"JSON|Unexpected token|Incomplete", re.IGNORECASE)
# process.exit(status) keeps the low eight bits (cli/src/utils/errors.ts).
_OF_EXIT_CODE = {status & 0xFF: status for status in (400, 401, 403, 408, 409, 413, 429, 499, 500, 501, 502, 503, 504)}


def http_status_of(message: str, exit_code: int | None, stderr: str) -> int | None:
    """The HTTP status, from where it can be had: message, exit code, the class or the fields of the stack."""
    told = _CODE.search(message)
    if told:
        return int(told[1])
    if exit_code in _OF_EXIT_CODE:
        return _OF_EXIT_CODE[exit_code]
    if "ModelNotFoundError" in stderr:
        return 404
    fields = _TOLD.findall(stderr)
    if fields:
        return int(fields[-1])
    return 429 if _QUOTA.search(stderr) else None


def api_failure(message: str, exit_code: int | None, stderr: str) -> Failure:
    """The failure behind an `[API Error: …]`."""
    status = http_status_of(message, exit_code, stderr)
    everything = f"{message}\n{stderr}"
    kind, retryable = _kind(status, message, everything)
    return Failure(
        kind=kind,
        message=_readable(message),
        retryable=retryable,
        hint=hint_for(kind),
        retry_after=_retry_after(everything) if kind in ("quota_minute", "server") else None,
        http_status=status,
    )


def _kind(status: int | None, message: str, everything: str) -> tuple[FailureKind, bool]:
    if status == 400:
        return ("auth", False) if _BAD_KEY.search(everything) else ("bad_request", False)
    if status in (401, 403):
        return "auth", False
    if status == 404:
        return "model_not_found", False
    if status == 429:
        day = _DAILY.search(everything) and not _CAPACITY.search(everything)
        return ("quota_day", False) if day else ("quota_minute", True)
    if status is not None and status >= 500:
        return "server", True
    if status in (408, 499) or (status is None and _NETWORK.search(message)):
        return "network", True
    if status is None and _GARBAGE.search(message):
        return "server", True
    if status is None and _NETWORK.search(everything):
        return "network", True
    return ("bad_request", False) if status is not None else ("server", True)


def _retry_after(text: str) -> float | None:
    seconds = _AFTER.search(text)
    if seconds:
        return float(seconds[1].rstrip("."))
    delay = _DELAY.search(text)
    return int(delay[1]) / 1000 if delay else None


def _readable(message: str) -> str:
    """The API's own sentence, out of the CLI's brackets and JSON."""
    inner = _INNER.search(message)
    if inner:
        return inner[1].replace('\\"', '"').replace("\\n", " ")
    wrapped = _WRAPPED.search(message)
    text = (wrapped[1] if wrapped else message).strip().rstrip("]")
    first = text.split("\n")[0].strip()
    return first if len(first) <= 500 else first[:497] + "..."
