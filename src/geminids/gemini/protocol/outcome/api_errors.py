"""Classify errors of the API from what the CLI reports: its error message, its exit code, and the
stack trace on stderr.

The CLI's exit code can be the HTTP status modulo 256.
"""

from __future__ import annotations

import json
import re
from typing import Any

from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.outcome import Failure, FailureKind

__all__ = ["api_failure", "http_status_of", "sentence_of"]

_CODE = re.compile(r'"code":\s*(\d{3})\b')
_STATUS_IN_STACK = re.compile(r"^\s*(?:cause: \{ )?(?:status|code): (\d{3})\b", re.MULTILINE)
_WRAPPED = re.compile(r"\[API Error: (.*?)\]?\s*(?:\n|$)", re.DOTALL)
_AFTER = re.compile(
    r"(?:retry (?:after|in)|reset after)\s+(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)\s*s)?", re.IGNORECASE
)
_DELAY = re.compile(r"retryDelayMs: (\d+)")
_BAD_KEY = re.compile(
    r"API_KEY_INVALID|API key (?:not valid|expired|not found)|pass a valid API key", re.IGNORECASE
)
_DAILY = re.compile(r"\bdaily\b|per ?day", re.IGNORECASE)
_QUOTA = re.compile(r"RetryableQuotaError|TerminalQuotaError|RESOURCE_EXHAUSTED|Resource exhausted")
_NETWORK = re.compile(
    r"fetch failed|terminated|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|UND_ERR|socket|other side closed|network",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(r"fetch failed|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT", re.IGNORECASE)
_INVALID_JSON = re.compile(r"JSON|Unexpected token|Incomplete", re.IGNORECASE)
# Releases before about 0.60 report only this text if the API's error is not JSON.
_UNKNOWN_ERROR = "An unknown error occurred."
_MESSAGE_IN_STDERR = re.compile(r"gemini-client-error-[^/\n]*?\.json (?:\w*Error: )?(\S[^\n]*)")
# The CLI uses the HTTP status as its exit code (cli/src/utils/errors.ts). The operating system
# keeps only the low eight bits of an exit code.
_STATUS_BY_EXIT_CODE = {
    status & 0xFF: status for status in (400, 401, 403, 408, 409, 413, 429, 499, 500, 501, 502, 503, 504)
}
# A quota that is available again within this time counts as a per-minute quota, even if the CLI
# calls it a daily one.
_SOON_SECONDS = 120.0
# If a quota is available again only after this time, the CLI does not wait for it
# (core/src/utils/googleQuotaErrors.ts).
_LASTING_SECONDS = 300.0
_EXHAUSTED = re.compile(
    r"limit:\s*0(?!\d|\.\d)|exhausted your capacity|capacity exceeded|MODEL_CAPACITY_EXHAUSTED", re.IGNORECASE
)
# The CLI prints this before the stack trace of the error that ended the run. Errors before it did not
# end the run: for example, the model router failed.
_FATAL = "Error when talking to Gemini API"
_MAX_SENTENCE = 500


def http_status_of(message: str, exit_code: int | None, stderr: str) -> int | None:
    """Return the HTTP status of an API error; None if the status is unknown.

    These sources are checked in this order: the CLI's error message, its exit code, and its stderr.
    """
    code = _CODE.search(message)
    if code:
        return int(code[1])
    stderr = stderr.rpartition(_FATAL)[2]
    if exit_code in _STATUS_BY_EXIT_CODE:
        return _STATUS_BY_EXIT_CODE[exit_code]
    if "ModelNotFoundError" in stderr:
        return 404
    fields = _STATUS_IN_STACK.findall(stderr)
    if fields:
        return int(fields[-1])
    return 429 if _QUOTA.search(stderr) else None


def api_failure(message: str, exit_code: int | None, stderr: str, *, status: int | None = None) -> Failure:
    """Return the failure for an API error that the CLI reported with this `message`.

    `status` is the HTTP status of the error. If it is None, `http_status_of` determines the status
    from the other arguments.
    """
    if status is None:
        status = http_status_of(message, exit_code, stderr)
    if _UNKNOWN_ERROR in message and (messages := _MESSAGE_IN_STDERR.findall(stderr)):
        message = messages[-1]
    everything = f"{message}\n{stderr}"
    retry_after = _retry_after(everything)
    kind, retryable = _kind(status, message, everything, retry_after)
    return Failure(
        kind=kind,
        message=_readable(kind, status, sentence_of(message)),
        retryable=retryable,
        hint=hint_for(kind, status),
        retry_after=retry_after if kind in ("quota_minute", "quota_day", "server") else None,
        http_status=status,
    )


def _kind(
    status: int | None, message: str, everything: str, retry_after: float | None
) -> tuple[FailureKind, bool]:
    if status == 400:
        return ("auth", False) if _BAD_KEY.search(everything) else ("bad_request", False)
    if status in (401, 403):
        return "auth", False
    if status == 404:
        return "model_not_found", False
    if status == 429:
        return (
            ("quota_day", False) if _is_lasting(message, everything, retry_after) else ("quota_minute", True)
        )
    if status is not None and status >= 500:
        return "server", True
    if status in (408, 499) or (status is None and _NETWORK.search(message)):
        return "network", True
    if status is None and _INVALID_JSON.search(message):
        return "server", True
    if status is None and _NETWORK.search(everything):
        return "network", True
    return ("bad_request", False) if status is not None else ("server", True)


def _is_lasting(message: str, everything: str, retry_after: float | None) -> bool:
    """Return whether a used-up quota stays used up for longer than a few minutes.

    `everything` is the error message and the stderr of the CLI. `retry_after` is the time in
    seconds after which the API says to try again; None if it is unknown.

    If `retry_after` is at most two minutes, the result is False. If it is longer or unknown, and
    the CLI raised TerminalQuotaError or `message` mentions a daily quota, the result is True. In
    all other cases, the CLI's own rules decide: they check `retry_after`, or `message` if
    `retry_after` is None.
    """
    if retry_after is not None and retry_after <= _SOON_SECONDS:
        return False
    if "TerminalQuotaError" in everything or _DAILY.search(message):
        return True
    return retry_after > _LASTING_SECONDS if retry_after is not None else bool(_EXHAUSTED.search(message))


def _retry_after(text: str) -> float | None:
    for hours, minutes, seconds in _AFTER.findall(text):
        if hours or minutes or seconds:
            return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds.rstrip(".") or 0)
    delay = _DELAY.search(text)
    return int(delay[1]) / 1000 if delay else None


def _readable(kind: FailureKind, status: int | None, sentence: str) -> str:
    """Explain an error message (`sentence`) of Node's HTTP client or JSON parser, such as
    "terminated". Return the explanation, followed by the original message in parentheses.

    Other messages are returned unchanged.
    """
    if kind == "network" and status is None:
        if _UNREACHABLE.search(sentence):
            return f"the API could not be reached ({sentence})"
        return f"the connection to the API was interrupted during an answer ({sentence})"
    if kind == "server" and status is None and _INVALID_JSON.search(sentence):
        return f"the API sent an invalid answer ({sentence})"
    return sentence


def sentence_of(message: str) -> str:
    """Extract the readable sentence from an error message of the CLI. The message can contain JSON.

    >>> sentence_of('[API Error: {"error":{"code":500,"message":"boom","status":"INTERNAL"}}]')
    'boom'
    """
    wrapped = _WRAPPED.search(message)
    text = _in_json(message) or (wrapped[1] if wrapped else message).strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = line.removeprefix("exception TypeError: ").removesuffix(" sending request") or "no message"
    return line if len(line) <= _MAX_SENTENCE else line[: _MAX_SENTENCE - 3] + "..."


def _in_json(text: str) -> str | None:
    """Return the field `message` of the JSON error in a text. Return None if the text contains no
    JSON error.

    The field itself can contain the JSON of another error, because the CLI sometimes puts the API's
    answer as text into its own error. Then the message of the inner error is returned.
    """
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    error = value.get("error", value)
    message: Any = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or not message.strip():
        return None
    return _in_json(message) or message
