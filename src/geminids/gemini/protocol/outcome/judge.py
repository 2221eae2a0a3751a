"""How the CLI ended: from its result line, exit code and stderr to an outcome and a failure.

A `result` that says success is not always one, and exit 0 is none at all: signals, safety blocks and loops all
end with exit 0. The tables of GEMINI_CLI.md, sections 1 and 3, are the source.
"""

from __future__ import annotations

import re
import signal

import msgspec

from geminids.gemini.protocol.outcome.api_errors import api_failure, sentence_of
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.outcome import Failure, FailureKind, Outcome

__all__ = [
    "NO_AUTH",
    "TIER_RETIRED",
    "Ending",
    "Evidence",
    "Remains",
    "cut_off",
    "failed",
    "failed_with",
    "how_it_crashed",
    "judge",
    "loop",
    "max_turns",
    "never_asked",
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
# A model's filters see the same answer again; an empty or broken one may be better the next time.
_FILTERED = re.compile(r"blocked due to|prohibited", re.IGNORECASE)
# Signals that somebody sends, as against those that a process dies of by itself (SEGV, ABRT, BUS).
_SENT_SIGNALS = {-1, -2, -3, -9, -13, -15}
NO_AUTH = "no way to sign in was found: no key in the environment, and none chosen in the settings"
_TAIL = 4000
_LONGEST = 500


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What any process leaves behind."""

    exit_code: int | None = None
    stderr: str = ""


class Evidence(Remains, frozen=True, kw_only=True):
    """All that the CLI left to judge its ending by."""

    result_status: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_lines: tuple[tuple[str, str], ...] = ()
    answer: str = ""
    resume: str | None = None
    total_tokens: int | None = None
    tool_calls: int | None = None


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
    named = evidence.resume not in (None, "latest")
    if named and _NO_SESSIONS in evidence.stderr and not _NO_SESSION.search(evidence.stderr):
        # Some releases begin a new session where the folder has none, whichever was asked for.
        message = f'the session "{evidence.resume}" was not found, and the CLI began a new one'
        return failed(evidence, "session_not_found", message)
    if evidence.result_status is None:
        return without_result(evidence)
    if evidence.result_status == "success":
        return _said_success(evidence)
    return _said_error(evidence)


def _said_success(evidence: Evidence) -> Ending:
    if any(_LOOP in message for _, message in evidence.error_lines):
        return loop(evidence)
    if any(_TURNS in message for _, message in evidence.error_lines):
        return max_turns()
    if not evidence.answer.strip() and evidence.total_tokens == 0 and not evidence.tool_calls:
        return never_asked(evidence)
    return Ending("success")


def never_asked(evidence: Remains) -> Ending:
    """The run of a CLI that had no request to make, and says so by silence."""
    message = "the CLI asked the model nothing: the conversation is too long for it, or a hook said no"
    ending = failed(evidence, "blocked", message)
    assert ending.failure is not None
    hint = "Shorten the prompt, start a new session, or look at the hooks that the settings name."
    return Ending("failed", message, msgspec.structs.replace(ending.failure, hint=hint))


def _said_error(evidence: Evidence) -> Ending:
    message = evidence.error_message
    if evidence.error_type == "FatalTurnLimitedError":
        return max_turns()
    if message is None:
        told = next((text for level, text in reversed(evidence.error_lines) if level == "error"), None)
        why = told or "the model's answer was blocked or empty"
        return failed(evidence, "blocked", why, retryable=not _FILTERED.search(why))
    if TIER_RETIRED.search(message):
        return tier_retired(evidence)
    if evidence.error_type == "FatalInputError":
        return failed(evidence, "bad_prompt", sentence_of(message))
    if evidence.error_type == "FatalCancellationError":
        return cut_off(evidence, "the CLI was cancelled from outside")
    if evidence.error_type == "FatalAuthenticationError":
        return failed(evidence, "auth", sentence_of(message))
    if evidence.error_type == "no_space_left" or evidence.exit_code == 54:
        return failed(evidence, "tool_fatal", sentence_of(message))
    return _ended_by_api(evidence, message)


def _ended_by_api(evidence: Remains, message: str) -> Ending:
    return failed_with(api_failure(message, evidence.exit_code, evidence.stderr), evidence)


def without_result(evidence: Remains) -> Ending:
    """Judge a process that ended before it said how."""
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
        return failed(evidence, kind, message or _last_words(stderr) or f"{_how(code)} without a result")
    if code == 0 or code == 130:
        return cut_off(evidence, "the CLI ended without a result, as it does when a signal ends it")
    if code in _SENT_SIGNALS:
        return cut_off(evidence, f"{_how(code)} and gave no result")
    if code == 1 and _BAD_FLAG.search(stderr):
        return failed(evidence, "cli_unsupported", _last_words(stderr, _BAD_FLAG))
    if _API_ERROR.search(stderr):
        return _ended_by_api(evidence, stderr)
    return failed(evidence, "crashed", how_it_crashed(code, stderr), retryable=True)


# The message is ours where the CLI's own would mislead: its advice for a shell is no advice for a library.
_BY_EXIT_CODE: dict[int | None, tuple[FailureKind, str | None]] = {
    44: ("sandbox", None),
    52: ("config", None),
    54: ("tool_fatal", None),
    55: ("untrusted_folder", "the CLI does not trust this folder, and headless it then refuses to run"),
}


def _no_auth(stderr: str) -> str:
    # The CLI names the settings file of the private home here, which is no place of the user's.
    if _NO_AUTH.search(stderr):
        return NO_AUTH
    return _last_words(stderr) or "no way to sign in was found"


def _bad_input(evidence: Remains) -> Ending:
    stderr = evidence.stderr
    if _NO_SESSION.search(stderr):
        unknown = _NO_SUCH_SESSION.search(stderr)
        message = (
            f'this folder has no session "{unknown[1]}"' if unknown else _last_words(stderr, _NO_SESSION)
        )
        if _NO_SESSIONS in stderr:
            message = "this folder has no session to resume"
        return failed(evidence, "session_not_found", message)
    if _ID_TAKEN.search(stderr):
        return failed(evidence, "bad_option", _last_words(stderr, _ID_TAKEN))
    return failed(evidence, "bad_prompt", _last_words(stderr) or "the CLI refused its input")


def tier_retired(evidence: Remains) -> Ending:
    """A consumer account, which Google serves no longer."""
    return failed(evidence, "tier_retired", "Google no longer serves Gemini CLI for this kind of account")


def loop(evidence: Remains) -> Ending:
    """The CLI's own verdict on a model that repeats itself."""
    return failed(evidence, "loop", "the model repeated itself and the CLI stopped it")


def max_turns() -> Ending:
    """The limit of the user's own."""
    return Ending("max_turns", "the run took all the turns that max_turns allows")


def cut_off(evidence: Remains, message: str) -> Ending:
    """Ended by somebody else than us."""
    return failed(evidence, "cut_off", message, retryable=True)


def failed(evidence: Remains, kind: FailureKind, message: str, *, retryable: bool = False) -> Ending:
    """A failure of this kind, with what the process left and what to do about it."""
    return failed_with(
        Failure(kind=kind, message=message, retryable=retryable, hint=hint_for(kind)), evidence
    )


def failed_with(failure: Failure, evidence: Remains) -> Ending:
    """This failure, with what the process left."""
    tail = evidence.stderr[-_TAIL:] or None
    failure = msgspec.structs.replace(failure, exit_code=evidence.exit_code, stderr_tail=tail)
    return Ending("failed", failure.message, failure)


def _how(code: int | None) -> str:
    if code is None:
        return "the CLI ended"
    if code >= 0:
        return f"the CLI ended with exit code {code}"
    try:
        return f"the CLI was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the CLI was ended by signal {-code}"


def how_it_crashed(code: int | None, stderr: str) -> str:
    """One sentence: the exit code or the signal, and the error that was told."""
    found = (match for line in stderr.splitlines() if (match := _ERROR_LINE.match(line)))
    told = next(found, None)
    return f"{_how(code)} and gave no result" + (f": {_cut(told[1])}" if told else "")


def _last_words(stderr: str, about: re.Pattern[str] | None = None) -> str:
    """The line that says why: the one about this, or the first that is no warning; never a stack."""
    for line in stderr.splitlines():
        if about is not None:
            if about.search(line):
                return _cut(line)
        elif line and not line.startswith(
            (" ", "Ripgrep", "Warning", "YOLO", "[STARTUP]", "(", "Loaded cached")
        ):
            return _cut(line)
    return _last_words(stderr) if about is not None else ""


def _cut(line: str) -> str:
    line = sentence_of(line)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
