"""Judge how an ACP turn ended, with the same endings as a headless run.

ACP reports less: its error code is an HTTP status, or 500 if the status was lost; `end_turn` also
stands for a missing answer; one stop reason stands for a loop and for too many turns. stderr is
complete only when the process ends, and it mixes all chats of the process.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from geminids.gemini.protocol.outcome.api_errors import api_failure, http_status_of, sentence_of
from geminids.gemini.protocol.outcome.judge import (
    NO_AUTH,
    TIER_RETIRED,
    Ending,
    ProcessEvidence,
    cut_off,
    describe_crash,
    failed,
    failed_with,
    loop,
    max_turns,
    no_model_request,
    tier_retired,
    without_result,
)

__all__ = ["TurnEvidence", "judge_opening", "judge_turn"]

_AUTH_REQUIRED = -32000
_INTERNAL_ERROR = -32603
# Code 500 without JSON from the API stands for any error whose status was lost (acpSession.ts).
_STATUS_LOST = 500
_NOT_FOUND = re.compile(r"\bnot found\b|NOT_FOUND")
_QUOTA = re.compile(r"\bquota|rate.?limit|resource (?:has been )?exhausted|RESOURCE_EXHAUSTED", re.IGNORECASE)
_NO_SESSION = re.compile(r"Session not found: (\S+)")
_NO_KEY = re.compile(r"API key is missing|^Authentication required", re.IGNORECASE)
_NO_FOLDER = re.compile(r"(?:Directory does not exist|Path is not a directory): (.*)")
_BAD_SETTINGS = re.compile(r"^Error in .*\.json: ")
# The CLI repeats its error answers on stderr, for every chat of the process.
_REPEATED = re.compile(r"^Error handling request .*$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class TurnEvidence(ProcessEvidence, frozen=True, kw_only=True):
    """Everything that the judgement of a turn is based on."""

    stop_reason: str | None = None
    """The answer's stop reason; None without an answer."""
    code: int | None = None
    """The code of a JSON-RPC error."""
    message: str | None = None
    data: str | None = None
    """The error's `data`, as text."""
    answer: str = ""
    """The text after the last tool call."""
    text: str = ""
    turns: int = 0
    """Model turns so far, counted as `max_turns` counts them."""
    max_turns: int | None = None
    tool_calls: int = 0
    thinking_only: bool = False
    """The model has sent thoughts but no text since the last tool call."""
    recorded: bool | None = None
    """Whether the session file has a model message after the last tool call or prompt.

    None if nobody has checked.
    """
    gone: bool = False
    """The process has ended."""


def judge_turn(evidence: TurnEvidence) -> Ending:
    """Judge one `session/prompt` that we did not stop ourselves.

    >>> judge_turn(TurnEvidence(stop_reason="end_turn", answer="Hello")).outcome
    'success'
    """
    if evidence.gone:
        return _judge_exit(evidence)
    if evidence.code is not None:
        return _judge_error(evidence, evidence.code, evidence.message or "", evidence.data)
    match evidence.stop_reason:
        case "end_turn":
            return _judge_end_turn(evidence)
        case "max_turn_requests":
            limit = evidence.max_turns
            return max_turns() if limit is not None and evidence.turns >= limit else loop(evidence)
        case "max_tokens":
            return no_model_request(evidence)
        case "cancelled":
            # An AbortError inside the CLI, or another prompt in the same session.
            return cut_off(evidence, "the turn was cancelled, but not by geminids")
        case "refusal":
            return failed(evidence, "blocked", "the model refused to answer")
    return failed(
        evidence, "protocol", f"the turn ended with the unknown stop reason {evidence.stop_reason!r}"
    )


def judge_opening(
    code: int | None, message: str | None, data: str | None, stderr: str = "", exit_code: int | None = None
) -> Ending:
    """Judge a failed `initialize` or `session/new`. Without a code, the process has ended."""
    evidence = ProcessEvidence(exit_code=exit_code, stderr=_ANSI.sub("", stderr))
    if code is None:
        return without_result(evidence)
    return _judge_error(evidence, code, message or "", data)


def _judge_end_turn(evidence: TurnEvidence) -> Ending:
    """Judge by the session file: the CLI neither records nor reports an invalid answer here."""
    if evidence.thinking_only:
        return _blocked(evidence, "the model sent only thoughts and no answer")
    if evidence.answer.strip():
        if evidence.recorded is False:
            return _blocked(evidence, "the model's answer was incomplete, and the CLI discarded it")
        return Ending("success")
    if evidence.recorded and evidence.tool_calls:
        return Ending("success")
    return _blocked(evidence, "the model's last answer was empty or blocked")


def _blocked(evidence: TurnEvidence, message: str) -> Ending:
    # Retryable, because ACP does not tell a filter from a temporary error.
    return failed(evidence, "blocked", message, retryable=True)


def _judge_exit(evidence: TurnEvidence) -> Ending:
    """`crashed` even after a signal: the caller does not manage a process of many chats."""
    message = describe_crash(evidence.exit_code, _REPEATED.sub("", evidence.stderr))
    return failed(evidence, "crashed", message, retryable=True)


def _judge_error(evidence: ProcessEvidence, code: int, message: str, data: str | None) -> Ending:
    details = _details(data)
    text = details or message
    if TIER_RETIRED.search(f"{message}\n{text}"):
        return tier_retired(evidence)
    if code == _AUTH_REQUIRED:
        return failed(evidence, "auth", NO_AUTH if _NO_KEY.search(message) else sentence_of(message))
    missing = _NO_SESSION.search(text)
    if code < 0 and missing:
        return failed(evidence, "session_not_found", f'the process has no session "{missing[1]}"')
    if code == _INTERNAL_ERROR and details:
        return _judge_internal_error(evidence, details)
    if code < 0:
        return failed(
            evidence, "protocol", f"the CLI rejected a request of geminids: {sentence_of(text)} ({code})"
        )
    return failed_with(api_failure(message, None, "", status=_status(code, message)), evidence)


def _judge_internal_error(evidence: ProcessEvidence, details: str) -> Ending:
    folder = _NO_FOLDER.search(details)
    if folder:
        return failed(evidence, "bad_option", f"cwd: {folder[1]} is gone or cannot be entered")
    if _BAD_SETTINGS.search(details):
        return failed(evidence, "config", sentence_of(details))
    return failed(
        evidence, "crashed", f"the CLI had an internal error: {sentence_of(details)}", retryable=True
    )


def _status(code: int, message: str) -> int | None:
    """Return the HTTP status, from the message if the code is 500.

    0.41 sends 500 for 429 and 503, and every release sends it for 404.
    """
    if code != _STATUS_LOST:
        return code if 400 <= code <= 599 else None
    status = http_status_of(message, None, "")
    if status is not None:
        return status
    if _NOT_FOUND.search(message):
        return 404
    return 429 if _QUOTA.search(message) else None


def _details(data: str | None) -> str | None:
    """Return the `details` of an internal error; other data lists errors in our request."""
    if data is None:
        return None
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    details = value.get("details") if isinstance(value, dict) else None
    return details if isinstance(details, str) else None
