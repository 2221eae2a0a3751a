"""How a turn on ACP ended: from the answer to a request, or its want, to the ending that a headless run would have.

ACP tells less: a code that is an HTTP status or 500 for want of one, `end_turn` for what was no answer at all, one
stop reason for a loop and for too many turns. stderr comes when the process ends, for all of its chats at once.
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
    Remains,
    cut_off,
    failed,
    failed_with,
    how_it_crashed,
    loop,
    max_turns,
    never_asked,
    tier_retired,
    without_result,
)

__all__ = ["TurnEvidence", "judge_opening", "judge_turn"]

_AUTH_REQUIRED = -32000
_OTHER_SIDES_FAULT = -32603
# Code 500 without the API's own JSON stands for any error that has lost its status (acpSession.ts).
_LOST = 500
_NOT_FOUND = re.compile(r"\bnot found\b|NOT_FOUND")
_QUOTA = re.compile(r"\bquota|rate.?limit|resource (?:has been )?exhausted|RESOURCE_EXHAUSTED", re.IGNORECASE)
_NO_SESSION = re.compile(r"Session not found: (\S+)")
_NO_KEY = re.compile(r"API key is missing|^Authentication required", re.IGNORECASE)
_NO_FOLDER = re.compile(r"(?:Directory does not exist|Path is not a directory): (.*)")
_BAD_SETTINGS = re.compile(r"^Error in .*\.json: ")
# The CLI repeats on stderr what it has answered, to whichever chat it was.
_REPEATED = re.compile(r"^Error handling request .*$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class TurnEvidence(Remains, frozen=True, kw_only=True):
    """All that a turn left to judge its ending by."""

    stop_reason: str | None = None
    """Of the answer; None where there was none."""
    code: int | None = None
    """Of a JSON-RPC error."""
    message: str | None = None
    data: str | None = None
    """The error's `data`, as text."""
    answer: str = ""
    """The text after the last tool."""
    text: str = ""
    turns: int = 0
    """Model turns so far, counted as `max_turns` counts them."""
    max_turns: int | None = None
    tool_calls: int = 0
    """Input and output of `_meta.quota`."""
    thinking_only: bool = False
    """Since the last tool there were thoughts, and no text."""
    recorded: bool | None = None
    """Whether the journal has a model's message since the last tool, or the prompt; None: nobody has looked."""
    gone: bool = False
    """The process ended."""


def judge_turn(evidence: TurnEvidence) -> Ending:
    """Judge one `session/prompt` that we did not stop ourselves.

    >>> judge_turn(TurnEvidence(stop_reason="end_turn", answer="Hello")).outcome
    'success'
    """
    if evidence.gone:
        return _died(evidence)
    if evidence.code is not None:
        return _said_error(evidence, evidence.code, evidence.message or "", evidence.data)
    match evidence.stop_reason:
        case "end_turn":
            return _said_done(evidence)
        case "max_turn_requests":
            limit = evidence.max_turns
            return max_turns() if limit is not None and evidence.turns >= limit else loop(evidence)
        case "max_tokens":
            return never_asked(evidence)
        case "cancelled":
            # An AbortError of the CLI's own, or another prompt in the same session.
            return cut_off(evidence, "the turn was cancelled, and not by us")
        case "refusal":
            return failed(evidence, "blocked", "the model refused to answer")
    return failed(evidence, "protocol", f"the turn ended with {evidence.stop_reason!r}, which is not known")


def judge_opening(
    code: int | None, message: str | None, data: str | None, stderr: str = "", exit_code: int | None = None
) -> Ending:
    """Judge an `initialize` or `session/new` that failed; without a code the process has ended."""
    evidence = Remains(exit_code=exit_code, stderr=_ANSI.sub("", stderr))
    if code is None:
        return without_result(evidence)
    return _said_error(evidence, code, message or "", data)


def _said_done(evidence: TurnEvidence) -> Ending:
    """What the CLI found to be no answer it does not keep, and tells nobody on this lane."""
    if evidence.thinking_only:
        return _blocked(evidence, "the model thought, and gave no answer")
    if evidence.answer.strip():
        if evidence.recorded is False:
            return _blocked(evidence, "the model's answer came to no proper end, and the CLI did not keep it")
        return Ending("success")
    if evidence.recorded and evidence.tool_calls:
        return Ending("success")
    return _blocked(evidence, "the model's last answer was empty or blocked")


def _blocked(evidence: TurnEvidence, message: str) -> Ending:
    # Retryable, since a filter and a mishap look the same here.
    return failed(evidence, "blocked", message, retryable=True)


def _died(evidence: TurnEvidence) -> Ending:
    """Whoever ended it: a process that serves many chats is not the caller's to look after."""
    how = how_it_crashed(evidence.exit_code, _REPEATED.sub("", evidence.stderr))
    return failed(evidence, "crashed", how, retryable=True)


def _said_error(evidence: Remains, code: int, message: str, data: str | None) -> Ending:
    details = _details(data)
    told = details or message
    if TIER_RETIRED.search(f"{message}\n{told}"):
        return tier_retired(evidence)
    if code == _AUTH_REQUIRED:
        return failed(evidence, "auth", NO_AUTH if _NO_KEY.search(message) else sentence_of(message))
    unknown = _NO_SESSION.search(told)
    if code < 0 and unknown:
        return failed(evidence, "session_not_found", f'the process has no session "{unknown[1]}"')
    if code == _OTHER_SIDES_FAULT and details:
        return _broke(evidence, details)
    if code < 0:
        return failed(
            evidence, "protocol", f"the CLI refused a request of ours: {sentence_of(told)} ({code})"
        )
    return failed_with(api_failure(message, None, "", status=_status(code, message)), evidence)


def _broke(evidence: Remains, details: str) -> Ending:
    folder = _NO_FOLDER.search(details)
    if folder:
        return failed(evidence, "bad_option", f"cwd: {folder[1]} is gone or cannot be entered")
    if _BAD_SETTINGS.search(details):
        return failed(evidence, "config", sentence_of(details))
    return failed(evidence, "crashed", f"the CLI failed inside: {sentence_of(details)}", retryable=True)


def _status(code: int, message: str) -> int | None:
    """The HTTP status: 0.41 gives 500 for 429 and 503, every release for 404; the words are left to go by."""
    if code != _LOST:
        return code if 400 <= code <= 599 else None
    told = http_status_of(message, None, "")
    if told is not None:
        return told
    if _NOT_FOUND.search(message):
        return 404
    return 429 if _QUOTA.search(message) else None


def _details(data: str | None) -> str | None:
    """What an internal error says in its `details`; other data is a list of what was wrong with our request."""
    if data is None:
        return None
    try:
        value: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    details = value.get("details") if isinstance(value, dict) else None
    return details if isinstance(details, str) else None
