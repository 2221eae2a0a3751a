"""How what real releases left behind is judged; the real runs are in tests/real/test_endings_*.py."""

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


def judged(exit_code: int | None = 0, **evidence: Any) -> Ending:
    return judge(Evidence(exit_code=exit_code, **evidence))


def kind(ending: Ending) -> tuple[str, str | None]:
    return ending.outcome, ending.failure.kind if ending.failure else None


@pytest.mark.parametrize("name", FAILURE_KINDS)
def test_every_failure_has_a_hint(name: Any) -> None:
    """One sentence that says what to do."""
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
def test_a_message_is_one_sentence_for_people(message: str, sentence: str) -> None:
    """Out of brackets, out of JSON in JSON, one line, not too long."""
    assert sentence_of(message) == sentence


@pytest.mark.parametrize(
    ("message", "stderr", "found"),
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
def test_a_quota_is_by_the_day_or_comes_back_soon(message: str, stderr: str, found: tuple[Any, ...]) -> None:
    """What the CLI gives up at once and what does not come back within minutes is no matter of waiting."""
    failure = api_failure(f"[API Error: {message}]", 173, stderr)
    assert (failure.kind, failure.retryable, failure.retry_after) == found
    assert failure.http_status == 429


def said(answer: str = "", **more: Any) -> dict[str, Any]:
    return {"result_status": "success", "answer": answer, **more}


def erred(name: str, exit_code: int) -> dict[str, Any]:
    return {"result_status": "error", "error_type": name, "error_message": "x", "exit_code": exit_code}


def gone(exit_code: int | None, stderr: str = "") -> dict[str, Any]:
    return {"exit_code": exit_code, "stderr": stderr}


TALKING = "Error when talking to Gemini API"
LOOP = ("warning", "Loop detected, stopping execution")
TURNS = ("error", "Maximum session turns exceeded")


@pytest.mark.parametrize(
    ("evidence", "outcome", "failed"),
    [
        (said("fine"), "success", None),
        (said("fine", exit_code=1), "success", None),
        (said("fine", stderr=TALKING), "success", None),
        (said("fine", error_lines=(("warning", "hm"),)), "success", None),
        (said(total_tokens=12, tool_calls=1), "success", None),
        (said(total_tokens=0, tool_calls=0), "failed", "blocked"),
        (said(error_lines=(LOOP,)), "failed", "loop"),
        (said(error_lines=(TURNS,)), "max_turns", None),
        ({"result_status": "error"}, "failed", "blocked"),
        (erred("FatalTurnLimitedError", 53), "max_turns", None),
        (erred("no_space_left", 54), "failed", "tool_fatal"),
        (erred("FatalCancellationError", 130), "failed", "cut_off"),
        (erred("FatalInputError", 42), "failed", "bad_prompt"),
        (erred("FatalAuthenticationError", 41), "failed", "auth"),
        (erred("x", 54), "failed", "tool_fatal"),
        ({**erred("x", 1), "error_message": "IneligibleTierError: no"}, "failed", "tier_retired"),
        (gone(1, "IneligibleTierError: no"), "failed", "tier_retired"),
        (gone(41), "failed", "auth"),
        (gone(1, "Please set an Auth method in your settings"), "failed", "auth"),
        (gone(55), "failed", "untrusted_folder"),
        (gone(-64), "failed", "crashed"),
        (gone(0), "failed", "cut_off"),
        (gone(-15), "failed", "cut_off"),
        (gone(130), "failed", "cut_off"),
        (gone(-11), "failed", "crashed"),
        (gone(None), "failed", "crashed"),
        (gone(44), "failed", "sandbox"),
        (gone(53), "max_turns", None),
        (gone(1, "Unknown arguments: session-id, sessionId"), "failed", "cli_unsupported"),
        (gone(42, 'Error starting session: Session ID "x" already exists.'), "failed", "bad_option"),
        (gone(42, "No input provided via stdin."), "failed", "bad_prompt"),
        (gone(144, f"{TALKING} _ApiError: API_KEY_INVALID"), "failed", "auth"),
    ],
)
def test_a_judgement(evidence: dict[str, Any], outcome: str, failed: str | None) -> None:
    """The result decides where there is one and it is believable; else exit code and stderr."""
    assert kind(judged(**evidence)) == (outcome, failed)


def test_a_new_session_in_place_of_the_one_asked_for_is_no_success() -> None:
    """The CLI may begin one in silence where the folder has none; only for `latest` is that what was asked for."""
    fresh = said("hi", stderr="No previous sessions found for this project.")
    ending = judged(**fresh, resume="some-id")
    assert kind(ending) == ("failed", "session_not_found")
    assert ending.clear_session
    assert kind(judged(**fresh, resume="latest")) == ("success", None)


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
def test_a_session_that_is_not_there(stderr: str, reason: str) -> None:
    """Exit 42 with such words is no bad prompt: the session is to be forgotten."""
    ending = judged(**gone(42, stderr))
    assert (kind(ending), ending.reason) == (("failed", "session_not_found"), reason)
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
    """0.54 puts no more into the result; its stderr has the error behind the name of a report."""
    place = "Full report available at: /tmp/gemini-client-error-Turn.run-sendMessageStream-1.json"
    stderr = f"{TALKING} {place} {error}\n    at x (y:1:2)\n" if error else ""
    told = "[API Error: An unknown error occurred.]"
    ending = judged(1, result_status="error", error_type="Error", error_message=told, stderr=stderr)
    assert (kind(ending), ending.reason) == (("failed", failed), reason)


def test_crashes_say_what_the_cli_said_last() -> None:
    """One line of the stack's head, not the stack."""
    ending = judged(exit_code=-6, stderr="x\nFATAL ERROR: Reached heap limit Allocation failed\n 1: 0xb7\n")
    assert (
        ending.reason
        == "the CLI was ended by SIGABRT and gave no result: FATAL ERROR: Reached heap limit Allocation failed"
    )
