"""Decide how a headless run ended, from the CLI's result line, exit code and stderr.

A result line with the status "success" does not prove that the run succeeded. An exit code of 0
does not prove it either: the CLI also exits with 0 after a signal, after a loop, or after a safety
filter has blocked the answer.
"""

from __future__ import annotations

import re
import signal

import msgspec

from geminids.gemini.protocol.outcome.api_errors import api_failure, sentence_of
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.stderr import is_noise
from geminids.outcome import Failure, FailureKind, Outcome

__all__ = [
    "NO_AUTH",
    "TIER_RETIRED",
    "Ending",
    "Evidence",
    "ProcessEvidence",
    "cut_off",
    "describe_crash",
    "failed",
    "failed_with",
    "judge",
    "loop",
    "max_turns",
    "no_model_request",
    "tier_retired",
    "without_result",
]

_API_ERROR = re.compile(r"\[API Error|Error when talking to Gemini API|_?ApiError")
TIER_RETIRED = re.compile(r"IneligibleTierError|no longer supported for Gemini Code Assist for individuals")
_NO_SESSION = re.compile(r"Error resuming session|Error importing session")
_NO_SUCH_SESSION = re.compile(r'Invalid session identifier "([^"]*)"')
_NO_SESSIONS = "No previous sessions found for this project"
_ID_TAKEN = re.compile(r"Error starting session: Session ID .* already exists")
_NO_AUTH = re.compile(r"^Please set an Auth method in your", re.MULTILINE)
_BAD_FLAG = re.compile(r"Unknown arguments?:|Invalid values:|Not enough arguments following")
_ERROR_LINE = re.compile(
    r"^(?:\[ERROR\] )?(?:Uncaught )?((?:\w*Error\b|FATAL ERROR|An unexpected critical error).*)$"
)
_LOOP = "Loop detected"
_TURNS = "Maximum session turns exceeded"
# These texts show that a safety filter blocked the answer. A retry does not help then, but it can
# help after an empty or invalid answer.
_FILTERED = re.compile(r"blocked due to|prohibited", re.IGNORECASE)
# Exit codes for signals that another process sent. A crash has other signals (SEGV, ABRT, BUS).
_SENT_SIGNALS = {-1, -2, -3, -9, -13, -15}
NO_AUTH = "no credentials found: no key in the environment, and no sign-in method in the settings"
_TAIL_SIZE = 4000
_MAX_LINE = 500


class ProcessEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about an ended CLI process that show how it ended: the exit code and stderr.

    `exit_code` is None if it is not known.
    """

    exit_code: int | None = None
    stderr: str = ""


class Evidence(ProcessEvidence, frozen=True, kw_only=True):
    """The facts about an ended headless run. From these, `judge` decides how the run ended.

    `result_status`, `error_type` and `error_message` come from the result line of the CLI. Each of
    these three is None if the CLI printed no result line, or if the result line does not contain
    it. `error_lines` contains the severity and the message of each error line. `resume` is the
    session that the run had to resume (an id or "latest"); None for a new session.
    """

    result_status: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_lines: tuple[tuple[str, str], ...] = ()
    answer: str = ""
    resume: str | None = None
    total_tokens: int | None = None
    tool_calls: int | None = None


class Ending(msgspec.Struct, frozen=True):
    """How a run ended: its outcome, the reason in one sentence (None after a success), and the
    failure (None if the run succeeded, or if a limit or the caller ended it).
    """

    outcome: Outcome
    reason: str | None = None
    failure: Failure | None = None

    @property
    def clear_session(self) -> bool:
        return self.failure is not None and self.failure.kind == "session_not_found"


def judge(evidence: Evidence) -> Ending:
    """Decide how a headless run ended. Do not use this for a run that geminids has stopped."""
    named = evidence.resume not in (None, "latest")
    if named and _NO_SESSIONS in evidence.stderr and not _NO_SESSION.search(evidence.stderr):
        # If the folder has no sessions, some releases start a new one instead of the requested one.
        message = f'the session "{evidence.resume}" was not found, and the CLI started a new one'
        return failed(evidence, "session_not_found", message)
    if evidence.result_status is None:
        return without_result(evidence)
    if evidence.result_status == "success":
        return _judge_success(evidence)
    return _judge_error(evidence)


def _judge_success(evidence: Evidence) -> Ending:
    if any(_LOOP in message for _, message in evidence.error_lines):
        return loop(evidence)
    if any(_TURNS in message for _, message in evidence.error_lines):
        return max_turns()
    if not evidence.answer.strip() and evidence.total_tokens == 0 and not evidence.tool_calls:
        return no_model_request(evidence)
    return Ending("success")


def no_model_request(evidence: ProcessEvidence) -> Ending:
    """Return the ending of a run in which the CLI sent no request to the model, although it
    reported no error. Such a run counts as failed.
    """
    message = (
        "the CLI sent no request to the model: the conversation is too long, or a hook blocked the request"
    )
    ending = failed(evidence, "blocked", message)
    assert ending.failure is not None
    hint = "Shorten the prompt, start a new session, or check the hooks in the settings."
    return Ending("failed", message, msgspec.structs.replace(ending.failure, hint=hint))


def _judge_error(evidence: Evidence) -> Ending:
    message = evidence.error_message
    if evidence.error_type == "FatalTurnLimitedError":
        return max_turns()
    if message is None:
        errors = (text for level, text in reversed(evidence.error_lines) if level == "error")
        cause = next(errors, None) or "the model's answer was blocked or empty"
        return failed(evidence, "blocked", cause, retryable=not _FILTERED.search(cause))
    if TIER_RETIRED.search(message):
        return tier_retired(evidence)
    if evidence.error_type == "FatalInputError":
        return failed(evidence, "bad_prompt", sentence_of(message))
    if evidence.error_type == "FatalCancellationError":
        return cut_off(evidence, "another process cancelled the CLI")
    if evidence.error_type == "FatalAuthenticationError":
        return failed(evidence, "auth", sentence_of(message))
    if evidence.error_type == "no_space_left" or evidence.exit_code == 54:
        return failed(evidence, "tool_fatal", sentence_of(message))
    return _api_error(evidence, message)


def _api_error(evidence: ProcessEvidence, message: str) -> Ending:
    return failed_with(api_failure(message, evidence.exit_code, evidence.stderr), evidence)


def without_result(evidence: ProcessEvidence) -> Ending:
    """Decide how a run ended if the CLI process printed no result line. The decision uses the
    exit code and stderr.
    """
    code, stderr = evidence.exit_code, evidence.stderr
    if TIER_RETIRED.search(stderr):
        return tier_retired(evidence)
    if code == 53:
        return max_turns()
    if code == 41 or (code == 1 and _NO_AUTH.search(stderr)):
        return failed(evidence, "auth", _no_auth(stderr))
    if code == 42:
        return _bad_input(evidence)
    if code in _BY_EXIT_CODE:
        kind, message = _BY_EXIT_CODE[code]
        return failed(
            evidence, kind, message or _relevant_line(stderr) or f"{_describe_exit(code)} without a result"
        )
    if code == 0 or code == 130:
        return cut_off(evidence, "the CLI ended without a result, probably because a signal stopped it")
    if code in _SENT_SIGNALS:
        return cut_off(evidence, f"{_describe_exit(code)} and gave no result")
    if code == 1 and _BAD_FLAG.search(stderr):
        return failed(evidence, "cli_unsupported", _relevant_line(stderr, _BAD_FLAG))
    if _API_ERROR.search(stderr):
        return _api_error(evidence, stderr)
    return failed(evidence, "crashed", describe_crash(code, stderr), retryable=True)


# The failure kind and message for each exit code. If the message is None, the CLI's message is
# used. Our message replaces a message of the CLI whose advice is only for users of a terminal.
_BY_EXIT_CODE: dict[int | None, tuple[FailureKind, str | None]] = {
    44: ("sandbox", None),
    52: ("config", None),
    54: ("tool_fatal", None),
    55: ("untrusted_folder", "the CLI does not trust this folder and refuses to run headless in it"),
}


def _no_auth(stderr: str) -> str:
    # Do not use the CLI's message: it names the settings file in the private home of the run, which
    # the user does not know.
    if _NO_AUTH.search(stderr):
        return NO_AUTH
    return _relevant_line(stderr) or "no credentials found"


def _bad_input(evidence: ProcessEvidence) -> Ending:
    stderr = evidence.stderr
    if _NO_SESSION.search(stderr):
        named = _NO_SUCH_SESSION.search(stderr)
        message = f'this folder has no session "{named[1]}"' if named else _relevant_line(stderr, _NO_SESSION)
        if _NO_SESSIONS in stderr:
            message = "this folder has no session to resume"
        return failed(evidence, "session_not_found", message)
    if _ID_TAKEN.search(stderr):
        return failed(evidence, "bad_option", _relevant_line(stderr, _ID_TAKEN))
    return failed(
        evidence,
        "bad_prompt",
        _relevant_line(stderr) or "the CLI rejected the input of this run, but gave no reason",
    )


def tier_retired(evidence: ProcessEvidence) -> Ending:
    """Return the ending of a run that failed because Google no longer serves Gemini CLI for this
    kind of personal Google account.
    """
    return failed(evidence, "tier_retired", "Google no longer serves Gemini CLI for this kind of account")


def loop(evidence: ProcessEvidence) -> Ending:
    """Return the ending of a run that the CLI stopped because the model repeated itself."""
    return failed(evidence, "loop", "the model repeated itself and the CLI stopped it")


def max_turns() -> Ending:
    """Return the ending of a run that has reached the limit `max_turns`."""
    return Ending("max_turns", "the run took all the turns that `max_turns` allows")


def cut_off(evidence: ProcessEvidence, message: str) -> Ending:
    """Return the ending of a run whose CLI was ended by another process or by a signal. `message`
    says what happened. The failure is marked as retryable.
    """
    return failed(evidence, "cut_off", message, retryable=True)


def failed(evidence: ProcessEvidence, kind: FailureKind, message: str, *, retryable: bool = False) -> Ending:
    """Return the ending of a failed run, with a failure of this kind and with this message. The
    exit code and the end of stderr come from `evidence`.
    """
    return failed_with(
        Failure(kind=kind, message=message, retryable=retryable, hint=hint_for(kind)), evidence
    )


def failed_with(failure: Failure, evidence: ProcessEvidence) -> Ending:
    """Return the ending of a failed run, with this failure. The exit code and the end of stderr in
    `evidence` are added to the failure.
    """
    tail = evidence.stderr[-_TAIL_SIZE:] or None
    failure = msgspec.structs.replace(failure, exit_code=evidence.exit_code, stderr_tail=tail)
    return Ending("failed", failure.message, failure)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "the CLI ended"
    if code >= 0:
        return f"the CLI ended with exit code {code}"
    try:
        return f"the CLI was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the CLI was ended by signal {-code}"


def describe_crash(code: int | None, stderr: str) -> str:
    """Return a sentence that describes a crash of the CLI: its exit code or signal, and the first
    error on stderr.
    """
    errors = (match for line in stderr.splitlines() if (match := _ERROR_LINE.match(line)))
    error = next(errors, None)
    return f"{_describe_exit(code)} and gave no result" + (f": {_shorten(error[1])}" if error else "")


def _relevant_line(stderr: str, about: re.Pattern[str] | None = None) -> str:
    """Return the line of stderr that explains the failure best, shortened.

    This is the first line that matches `about`. If no line matches, or if `about` is None, it is
    the first line that is not noise, a warning or a part of a stack trace. Return an empty string
    if there is no such line.
    """
    for line in stderr.splitlines():
        if about is not None:
            if about.search(line):
                return _shorten(line)
        elif line and not is_noise(line) and not line.startswith((" ", "Warning", "(")):
            return _shorten(line)
    return _relevant_line(stderr) if about is not None else ""


def _shorten(line: str) -> str:
    line = sentence_of(line)
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
