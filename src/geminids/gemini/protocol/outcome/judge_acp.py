"""Decide how a turn ended, if geminids controls the CLI process over ACP (the CLI's JSON-RPC
protocol). The possible endings are the same as for a headless run.

ACP reports less than a headless run:

- The code of an error is an HTTP status. But the code 500 can also mean that the CLI does not know
  the status.
- The stop reason `end_turn` can also mean that the answer is missing.
- A loop and too many turns have the same stop reason.
- The stderr is complete only after the process has ended, and it contains messages about all chats
  of the process.
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
# The CLI also sends the code 500 if it does not know the HTTP status of an error (acpSession.ts).
_STATUS_LOST = 500
_NOT_FOUND = re.compile(r"\bnot found\b|NOT_FOUND")
_QUOTA = re.compile(r"\bquota|rate.?limit|resource (?:has been )?exhausted|RESOURCE_EXHAUSTED", re.IGNORECASE)
_NO_SESSION = re.compile(r"Session not found: (\S+)")
_NO_KEY = re.compile(r"API key is missing|^Authentication required", re.IGNORECASE)
_NO_FOLDER = re.compile(r"(?:Directory does not exist|Path is not a directory): (.*)")
_BAD_SETTINGS = re.compile(r"^Error in .*\.json: ")
# The CLI also prints each of its error responses on stderr, for all chats of the process.
_REPEATED = re.compile(r"^Error handling request .*$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class TurnEvidence(ProcessEvidence, frozen=True, kw_only=True):
    """The facts about an ended turn of a chat. From these, `judge_turn` decides how the
    turn ended.
    """

    stop_reason: str | None = None
    """The stop reason in the response to `session/prompt`; None if there was no response."""
    code: int | None = None
    """The code of the JSON-RPC error; None if the response was no error."""
    message: str | None = None
    data: str | None = None
    """The field `data` of the JSON-RPC error, as text."""
    answer: str = ""
    """The model's text after the last tool call."""
    text: str = ""
    turns: int = 0
    """The number of model turns so far, which the option `max_turns` limits."""
    max_turns: int | None = None
    tool_calls: int = 0
    thinking_only: bool = False
    """Whether the model sent thoughts, but no text, after the last tool call."""
    recorded: bool | None = None
    """Whether the session file has a model message after the last tool call or prompt.

    None if this is unknown, for example because the file was not read completely.
    """
    gone: bool = False
    """Whether the CLI process has ended."""


def judge_turn(evidence: TurnEvidence) -> Ending:
    """Decide how a turn (one request `session/prompt`) ended. Do not use this for a turn that
    geminids has cancelled.

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
            # The cause is an AbortError inside the CLI, or another prompt in the same session.
            return cut_off(evidence, "the turn was cancelled, but not by geminids")
        case "refusal":
            return failed(evidence, "blocked", "the model refused to answer")
    return failed(
        evidence, "protocol", f"the turn ended with the unknown stop reason {evidence.stop_reason!r}"
    )


def judge_opening(
    code: int | None, message: str | None, data: str | None, stderr: str = "", exit_code: int | None = None
) -> Ending:
    """Return the ending of a chat that could not be opened, because the request `initialize` or
    `session/new` to the CLI failed.

    `code`, `message` and `data` come from the JSON-RPC error. `code` is None if the CLI process
    ended without a response.
    """
    evidence = ProcessEvidence(exit_code=exit_code, stderr=_ANSI.sub("", stderr))
    if code is None:
        return without_result(evidence)
    return _judge_error(evidence, code, message or "", data)


def _judge_end_turn(evidence: TurnEvidence) -> Ending:
    """Decide how a turn with the stop reason `end_turn` ended.

    The CLI also sends `end_turn` after an invalid answer of the model. Only the session file shows
    whether the answer was valid, because the CLI does not store an invalid answer. So an answer
    that is missing in the session file was invalid.
    """
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
    # ACP does not show whether a filter or a temporary error stopped the answer, so a retry may
    # help.
    return failed(evidence, "blocked", message, retryable=True)


def _judge_exit(evidence: TurnEvidence) -> Ending:
    """Return the ending of a turn that was still running when the CLI process ended.

    The kind of failure is always `crashed`, even if a signal ended the process. The process serves
    many chats, so the signal was not sent to end this turn.
    """
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
        return failed(evidence, "session_not_found", f'the CLI process has no session "{missing[1]}"')
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
        return failed(evidence, "bad_option", f"`cwd`: {folder[1]} is not an existing folder")
    if _BAD_SETTINGS.search(details):
        return failed(evidence, "config", sentence_of(details))
    return failed(
        evidence, "crashed", f"the CLI had an internal error: {sentence_of(details)}", retryable=True
    )


def _status(code: int, message: str) -> int | None:
    """Return the HTTP status of an error that the CLI reported with this `code` and this `message`.
    Return None if the status is unknown.

    Usually `code` is the status. But a `code` of 500 is not reliable, so the status is then taken
    from `message`: the CLI sends 500 also in place of 404, and some releases send 500 in place of
    429 or 503.
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
    """Return the text of an internal error of the CLI. `data` is the field `data` of the JSON-RPC
    error, as text.

    If `data` is JSON, the text is in its field `details`; return None if this field contains no
    text. If `data` is not JSON, return `data` itself. If `data` is None, return None.
    """
    if data is None:
        return None
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    details = value.get("details") if isinstance(value, dict) else None
    return details if isinstance(details, str) else None
