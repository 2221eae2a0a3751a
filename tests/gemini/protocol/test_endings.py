"""How the output of real releases is judged. The real runs are in tests/real/test_endings_*.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gemini.protocol.outcome.api_errors import api_failure, sentence_of
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending, Evidence, judge
from geminids.outcome import FAILURE_KINDS

NESTED = json.dumps({"error": {"message": '{\n  "error": {"code": 400, "message": "No."}}', "code": 400}})
RESET = "You have exhausted your capacity on this model. Your quota will reset after {}."


def judge_evidence(exit_code: int | None = 0, **evidence: Any) -> Ending:
    return judge(Evidence(exit_code=exit_code, **evidence))


def outcome_and_kind(ending: Ending) -> tuple[str, str | None]:
    return ending.outcome, ending.failure.kind if ending.failure else None


@pytest.mark.parametrize("name", FAILURE_KINDS)
def test_every_failure_has_a_hint(name: Any) -> None:
    """Every kind of failure has a hint, which is a sentence."""
    assert hint_for(name).endswith(".")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("[API Error: overloaded]", "overloaded"),
        (
            "[API Error: Resource exhausted\nSuggested retry after 1s.]\nPlease wait and try again.",
            "Resource exhausted",
        ),
        (f"[API Error: {NESTED}]", "No."),
        ('[API Error: got status: 400 Bad Request. {"error":{"message":"No.","code":400}}]', "No."),
        ("[API Error: exception TypeError: fetch failed sending request]", "fetch failed"),
        (
            "[API Error: Expected property name or '}' in JSON at position 1]",
            "Expected property name or '}' in JSON at position 1",
        ),
        ("[API Error: {not json]", "{not json"),
        ("x" * 900, "x" * 497 + "..."),
        ("", "no message"),
    ],
)
def test_sentence_of_a_message(message: str, sentence: str) -> None:
    """`sentence_of` extracts one short line from brackets and nested JSON."""
    assert sentence_of(message) == sentence


@pytest.mark.parametrize(
    ("message", "stderr", "failure_expected"),
    [
        (RESET.format("10s"), "RetryableQuotaError", ("quota_minute", True, 10.0)),
        (RESET.format("2h30m18s"), "TerminalQuotaError", ("quota_day", False, 9018.0)),
        (RESET.format("45s"), "TerminalQuotaError", ("quota_minute", True, 45.0)),
        (
            "You have exhausted your daily quota on this model.",
            "TerminalQuotaError",
            ("quota_day", False, None),
        ),
        ("Resource exhausted", "  retryDelayMs: 1500,", ("quota_minute", True, 1.5)),
    ],
)
def test_quota_per_minute_or_day(message: str, stderr: str, failure_expected: tuple[Any, ...]) -> None:
    """A quota error is `quota_minute` (retryable) if the quota comes back soon, and `quota_day`
    otherwise.
    """
    failure = api_failure(f"[API Error: {message}]", 173, stderr)
    assert (failure.kind, failure.retryable, failure.retry_after) == failure_expected
    assert failure.http_status == 429


def success_evidence(answer: str = "", **more: Any) -> dict[str, Any]:
    return {"result_status": "success", "answer": answer, **more}


def error_evidence(name: str, exit_code: int) -> dict[str, Any]:
    return {"result_status": "error", "error_type": name, "error_message": "x", "exit_code": exit_code}


def exit_evidence(exit_code: int | None, stderr: str = "") -> dict[str, Any]:
    return {"exit_code": exit_code, "stderr": stderr}


TALKING_ERROR = "Error when talking to Gemini API"
LOOP = ("warning", "Loop detected, stopping execution")
TURNS = ("error", "Maximum session turns exceeded")


@pytest.mark.parametrize(
    ("evidence", "outcome", "failed"),
    [
        (success_evidence("fine"), "success", None),
        (success_evidence("fine", exit_code=1), "success", None),
        (success_evidence("fine", stderr=TALKING_ERROR), "success", None),
        (success_evidence("fine", error_lines=(("warning", "hm"),)), "success", None),
        (success_evidence(total_tokens=12, tool_calls=1), "success", None),
        (success_evidence(total_tokens=0, tool_calls=0), "failed", "blocked"),
        (success_evidence(error_lines=(LOOP,)), "failed", "loop"),
        (success_evidence(error_lines=(TURNS,)), "max_turns", None),
        ({"result_status": "error"}, "failed", "blocked"),
        (error_evidence("FatalTurnLimitedError", 53), "max_turns", None),
        (error_evidence("no_space_left", 54), "failed", "tool_fatal"),
        (error_evidence("FatalCancellationError", 130), "failed", "cut_off"),
        (error_evidence("FatalInputError", 42), "failed", "bad_prompt"),
        (error_evidence("FatalAuthenticationError", 41), "failed", "auth"),
        (error_evidence("x", 54), "failed", "tool_fatal"),
        ({**error_evidence("x", 1), "error_message": "IneligibleTierError: no"}, "failed", "tier_retired"),
        (exit_evidence(1, "IneligibleTierError: no"), "failed", "tier_retired"),
        (exit_evidence(41), "failed", "auth"),
        (exit_evidence(1, "Please set an Auth method in your settings"), "failed", "auth"),
        (exit_evidence(55), "failed", "untrusted_folder"),
        (exit_evidence(-64), "failed", "crashed"),
        (exit_evidence(0), "failed", "cut_off"),
        (exit_evidence(-15), "failed", "cut_off"),
        (exit_evidence(130), "failed", "cut_off"),
        (exit_evidence(-11), "failed", "crashed"),
        (exit_evidence(None), "failed", "crashed"),
        (exit_evidence(44), "failed", "sandbox"),
        (exit_evidence(53), "max_turns", None),
        (exit_evidence(1, "Unknown arguments: session-id, sessionId"), "failed", "cli_unsupported"),
        (exit_evidence(42, 'Error starting session: Session ID "x" already exists.'), "failed", "bad_option"),
        (exit_evidence(42, "No input provided via stdin."), "failed", "bad_prompt"),
        (exit_evidence(144, f"{TALKING_ERROR} _ApiError: API_KEY_INVALID"), "failed", "auth"),
    ],
)
def test_outcome_of_each_evidence(evidence: dict[str, Any], outcome: str, failed: str | None) -> None:
    """A credible result decides; otherwise exit code and stderr decide."""
    assert outcome_and_kind(judge_evidence(**evidence)) == (outcome, failed)


@pytest.mark.parametrize(
    "noise",
    [
        "The 'metricReader' option is deprecated. Please use 'metricReaders' instead.",
        "Ripgrep is not available. Falling back to GrepTool.",
        "YOLO mode is enabled. All tool calls will be automatically approved.",
    ],
)
def test_noise_is_not_the_reason(noise: str) -> None:
    """A line that the CLI prints in every run is not the reason of a failure."""
    ending = judge_evidence(**exit_evidence(41, f"{noise}\nInvalid auth method selected.\n"))
    assert ending.reason == "Invalid auth method selected."


def test_the_hint_names_the_variables_of_vertex() -> None:
    """GOOGLE_API_KEY without GOOGLE_GENAI_USE_VERTEXAI is a common mistake: the hint names both."""
    hint = hint_for("auth")
    assert all(name in hint for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"))


def test_a_new_session_instead_of_the_requested_one() -> None:
    """If the CLI starts a new session instead of the requested one, the run failed.

    Only for `latest` it is a success.
    """
    fresh = success_evidence("hi", stderr="No previous sessions found for this project.")
    ending = judge_evidence(**fresh, resume="some-id")
    assert outcome_and_kind(ending) == ("failed", "session_not_found")
    assert ending.clear_session
    assert outcome_and_kind(judge_evidence(**fresh, resume="latest")) == ("success", None)


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            'Error resuming session: Invalid session identifier "nope".',
            'this folder has no session "nope"',
        ),
        (
            "Error resuming session: No previous sessions found for this project.",
            "this folder has no session to resume",
        ),
        ("Warning: x\nError resuming session: it is broken", "Error resuming session: it is broken"),
    ],
)
def test_a_missing_session(stderr: str, reason: str) -> None:
    """Exit code 42 with a message about resuming means `session_not_found`, not a bad prompt."""
    ending = judge_evidence(**exit_evidence(42, stderr))
    assert (outcome_and_kind(ending), ending.reason) == (("failed", "session_not_found"), reason)
    assert ending.clear_session


@pytest.mark.parametrize(
    ("error", "failed", "reason"),
    [
        ("ModelNotFoundError: models/nope is not found.", "model_not_found", "models/nope is not found."),
        (
            "Error: exception TypeError: fetch failed sending request",
            "network",
            "the API could not be reached (fetch failed)",
        ),
        (None, "server", "An unknown error occurred."),
    ],
)
def test_an_unknown_error_is_looked_up_on_stderr(error: str | None, failed: str, reason: str) -> None:
    """If the result names no cause, as in 0.54, the cause is read from stderr, after the path of
    the report.
    """
    place = "Full report available at: /tmp/gemini-client-error-Turn.run-sendMessageStream-1.json"
    stderr = f"{TALKING_ERROR} {place} {error}\n    at x (y:1:2)\n" if error else ""
    text = "[API Error: An unknown error occurred.]"
    ending = judge_evidence(1, result_status="error", error_type="Error", error_message=text, stderr=stderr)
    assert (outcome_and_kind(ending), ending.reason) == (("failed", failed), reason)


def test_a_crash_quotes_the_last_line_of_stderr() -> None:
    """The reason of a crash quotes the line before the stack on stderr."""
    ending = judge_evidence(
        exit_code=-6, stderr="x\nFATAL ERROR: Reached heap limit Allocation failed\n 1: 0xb7\n"
    )
    assert (
        ending.reason
        == "the CLI was ended by SIGABRT and gave no result: FATAL ERROR: Reached heap limit Allocation failed"
    )
