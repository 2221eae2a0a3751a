"""How the CLI ended: from its result line, exit code and stderr to an outcome and a failure.

A `result` that says success is not always one, and exit 0 is none at all: signals, safety blocks, loops and
0.11's bad keys all end with exit 0. The tables of GEMINI_CLI.md, sections 1 and 3, are the source.
"""

from __future__ import annotations

import re

import msgspec

from geminids.outcome import Failure, FailureKind, Outcome
from geminids.toolchain import Release
from geminids.wire.api_errors import api_failure
from geminids.wire.hints import hint_for

__all__ = ["Ending", "Evidence", "judge"]

_API_ERROR = re.compile(r"\[API Error|Error when talking to Gemini API|_?ApiError")
_TIER = re.compile(r"IneligibleTierError|no longer supported for Gemini Code Assist for individuals")
_NO_SESSION = re.compile(r"Error resuming session|Error importing session")
_ID_TAKEN = re.compile(r"Error starting session: Session ID .* already exists")
_BAD_FLAG = re.compile(r"Unknown arguments?:|Invalid values:|Not enough arguments following")
_LOOP = "Loop detected"
# Signals that somebody sends, as against those that a process dies of by itself (SEGV, ABRT, BUS).
_SENT_SIGNALS = {-1, -2, -3, -9, -13, -15}
_TAIL = 4000


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that the CLI left to judge its ending by."""

    release: Release
    exit_code: int | None
    result_status: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_lines: tuple[tuple[str, str], ...] = ()
    answer: str = ""
    stderr: str = ""


class Ending(msgspec.Struct, frozen=True):
    """What it was, why in one sentence, and the failure where it is one."""

    outcome: Outcome
    reason: str | None = None
    failure: Failure | None = None

    @property
    def clear_session(self) -> bool:
        return self.failure is not None and self.failure.kind == "session_not_found"


def judge(evidence: Evidence) -> Ending:
    """Judge a run that we did not stop ourselves."""
    if evidence.result_status is None:
        return _without_result(evidence)
    if evidence.result_status == "success":
        return _said_success(evidence)
    return _said_error(evidence)


def _said_success(evidence: Evidence) -> Ending:
    if any(_LOOP in message for _, message in evidence.error_lines):
        return _failed(evidence, "loop", "the model repeated itself and the CLI stopped it")
    if not evidence.answer.strip():
        if not evidence.release.reports_api_errors and _API_ERROR.search(evidence.stderr):
            return _ended_by_api(evidence, evidence.stderr)
        if not evidence.release.reports_empty_answer:
            return _failed(evidence, "blocked", "the model's last answer was empty", retryable=True)
    return Ending("success")


def _said_error(evidence: Evidence) -> Ending:
    message = evidence.error_message
    if evidence.error_type == "FatalTurnLimitedError":
        return _max_turns()
    if message is None:
        told = next((text for level, text in reversed(evidence.error_lines) if level == "error"), None)
        why = told or "the model's answer was blocked or empty"
        return _failed(evidence, "blocked", why, retryable="safety" not in why and "prohibited" not in why.lower())
    if evidence.error_type == "FatalInputError":
        return _failed(evidence, "bad_prompt", message)
    if evidence.error_type == "FatalCancellationError":
        return _cut_off(evidence, "the CLI was cancelled from outside")
    if evidence.error_type == "no_space_left" or evidence.exit_code == 54:
        return _failed(evidence, "tool_fatal", message)
    return _ended_by_api(evidence, message)


def _ended_by_api(evidence: Evidence, message: str) -> Ending:
    return _as_failed(api_failure(message, evidence.exit_code, evidence.stderr), evidence)


def _without_result(evidence: Evidence) -> Ending:
    code, stderr = evidence.exit_code, evidence.stderr
    if _TIER.search(stderr):
        return _failed(evidence, "tier_retired", "Google no longer serves Gemini CLI for this kind of account")
    if code == 53:
        return _max_turns()
    if code in _BY_EXIT_CODE:
        kind, message = _BY_EXIT_CODE[code]
        if code == 42:
            kind, message = _bad_input(stderr)
        return _failed(evidence, kind, _last_words(stderr) or message)
    if code == 0 or code == 130 or code in _SENT_SIGNALS:
        return _cut_off(evidence, _how(code) + " without a result")
    if code == 1 and _BAD_FLAG.search(stderr):
        return _failed(evidence, "cli_unsupported", _last_words(stderr))
    if _API_ERROR.search(stderr):
        return _ended_by_api(evidence, stderr)
    return _failed(evidence, "crashed", f"{_how(code)} without a result", retryable=True)


_BY_EXIT_CODE: dict[int | None, tuple[FailureKind, str]] = {
    41: ("auth", "no way to sign in was found"),
    42: ("bad_prompt", "the CLI refused its input"),
    44: ("sandbox", "the sandbox could not be started"),
    52: ("config", "the CLI refused a settings file"),
    54: ("tool_fatal", "a tool failed for good"),
    55: ("untrusted_folder", "the CLI does not trust this folder"),
}


def _bad_input(stderr: str) -> tuple[FailureKind, str]:
    if _NO_SESSION.search(stderr):
        return "session_not_found", "the session to resume was not found"
    if _ID_TAKEN.search(stderr):
        return "bad_option", "the session id is taken"
    return "bad_prompt", "the CLI refused its input"


def _max_turns() -> Ending:
    return Ending("max_turns", "the run took all the turns that max_turns allows")


def _cut_off(evidence: Evidence, message: str) -> Ending:
    return _failed(evidence, "cut_off", message, retryable=True)


def _failed(evidence: Evidence, kind: FailureKind, message: str, *, retryable: bool = False) -> Ending:
    return _as_failed(Failure(kind=kind, message=message, retryable=retryable, hint=hint_for(kind)), evidence)


def _as_failed(failure: Failure, evidence: Evidence) -> Ending:
    tail = evidence.stderr[-_TAIL:] or None
    failure = msgspec.structs.replace(failure, exit_code=evidence.exit_code, stderr_tail=tail)
    return Ending("failed", failure.message, failure)


def _how(code: int | None) -> str:
    if code is None:
        return "the CLI ended"
    if code < 0:
        return f"the CLI was ended by signal {-code}"
    return f"the CLI ended with exit code {code}"


def _last_words(stderr: str) -> str:
    """The line that says why: mostly the first that is no warning, never a stack."""
    for line in stderr.splitlines():
        if line and not line.startswith((" ", "Ripgrep", "Warning", "YOLO", "[STARTUP]", "(")):
            return line if len(line) <= 500 else line[:497] + "..."
    return ""
