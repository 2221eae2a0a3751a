"""How ACP answers of real releases are judged. tests/shared/warm_endings.py has the scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gemini.protocol.outcome.judge import Ending
from geminids.gemini.protocol.outcome.judge_acp import TurnEvidence, judge_opening, judge_turn

BAD_KEY = json.dumps(
    {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}],
        }
    }
)
BOOM = '{"error":{"code":500,"message":"It is overloaded.","status":"INTERNAL"}}'
DAILY = "You have exhausted your daily quota on this model."
MINUTE = "Resource exhausted\nSuggested retry after 1s."
CAPACITY = "You have exhausted your capacity on this model."
# The CLI writes this when it ends, about requests of any of its chats.
REPEATED = "Error handling request {\n  id: 3\n} { code: 500, message: 'of another chat' }\n"


def judge_with(**evidence: Any) -> Ending:
    return judge_turn(TurnEvidence(**evidence))


def judge_end_turn(**evidence: Any) -> Ending:
    return judge_with(stop_reason="end_turn", **evidence)


def outcome_and_kind(ending: Ending) -> tuple[str, str | None]:
    return ending.outcome, ending.failure.kind if ending.failure else None


@pytest.mark.parametrize(
    ("code", "message", "failure_expected"),
    [
        (400, BAD_KEY, ("auth", 400, False, None)),
        (400, json.dumps({"error": {"message": BAD_KEY, "code": 400}}), ("auth", 400, False, None)),
        (400, "API key not valid. Please pass a valid API key.", ("auth", 400, False, None)),
        (401, "Invalid authentication credentials.", ("auth", 401, False, None)),
        (403, "Permission denied on project x.", ("auth", 403, False, None)),
        (400, "The input token count is too high.", ("bad_request", 400, False, None)),
        (413, "Too large.", ("bad_request", 413, False, None)),
        (500, "models/nope is not found.", ("model_not_found", 404, False, None)),
        (429, MINUTE, ("quota_minute", 429, True, 1.0)),
        (500, MINUTE, ("quota_minute", 429, True, 1.0)),
        (429, "Resource exhausted", ("quota_minute", 429, True, None)),
        (500, "Resource exhausted", ("quota_minute", 429, True, None)),
        (429, "Rate limit exceeded. Try again later.", ("quota_minute", 429, True, None)),
        (429, DAILY, ("quota_day", 429, False, None)),
        (500, DAILY, ("quota_day", 429, False, None)),
        (429, CAPACITY, ("quota_day", 429, False, None)),
        (429, f"{CAPACITY} Your quota will reset after 2h30m18s.", ("quota_day", 429, False, 9018.0)),
        (429, f"{CAPACITY} Your quota will reset after 45s.", ("quota_minute", 429, True, 45.0)),
        (429, "Quota exceeded. Please retry in 200s.", ("quota_minute", 429, True, 200.0)),
        (500, BOOM, ("server", 500, True, None)),
        (503, "It is overloaded.", ("server", 503, True, None)),
        (500, "It is overloaded.", ("server", None, True, None)),
        (500, "exception TypeError: fetch failed sending request", ("network", None, True, None)),
        (500, "getaddrinfo ENOTFOUND api.test", ("network", None, True, None)),
        (500, "terminated", ("network", None, True, None)),
        (500, "Incomplete JSON segment at the end", ("server", None, True, None)),
    ],
)
def test_api_errors(code: int, message: str, failure_expected: tuple[Any, ...]) -> None:
    """An API error on ACP has the same kind as in a headless run.

    If the code is a bare 500, the text decides.
    """
    ending = judge_with(code=code, message=message)
    failure = ending.failure
    assert failure is not None
    assert (failure.kind, failure.http_status, failure.retryable, failure.retry_after) == failure_expected
    assert failure.hint
    assert ending.reason == failure.message
    assert "{" not in failure.message


def test_a_status_outranks_the_text() -> None:
    """A reported status decides, even if the text suggests another error."""
    failure = judge_with(code=503, message="The quota service was not found.").failure
    assert failure is not None
    assert (failure.kind, failure.http_status) == ("server", 503)


@pytest.mark.parametrize("recorded", [True, None])
def test_an_answer_is_a_success(recorded: bool | None) -> None:
    """An answer is a success, also if stderr has errors of other chats."""
    assert judge_end_turn(answer="Hello", recorded=recorded, tool_calls=2, stderr=REPEATED) == Ending(
        "success"
    )


def test_a_discarded_answer_is_no_success() -> None:
    """An answer that the journal does not contain was discarded by the CLI: the turn failed and can
    be retried.
    """
    ending = judge_end_turn(answer="I call", recorded=False)
    assert outcome_and_kind(ending) == ("failed", "blocked")
    assert ending.failure is not None
    assert ending.failure.retryable


@pytest.mark.parametrize(
    "evidence",
    [
        {"recorded": False},
        {"recorded": None},
        {"recorded": True},
        {"answer": " \n", "recorded": True},
        {"recorded": False, "tool_calls": 1},
        {"recorded": None, "tool_calls": 1},
        {"recorded": True, "tool_calls": 1, "thinking_only": True},
    ],
)
def test_an_empty_answer_is_no_success(evidence: dict[str, Any]) -> None:
    """A turn without an answer (filtered, blocked or only thoughts) failed, although ACP reports
    `end_turn`.
    """
    ending = judge_end_turn(**evidence)
    assert outcome_and_kind(ending) == ("failed", "blocked")
    assert ending.failure is not None
    assert ending.failure.retryable


def test_a_tool_without_an_answer_is_a_success() -> None:
    """A turn with a tool and an empty answer is a success if the journal contains its message, as
    in a headless run.
    """
    assert judge_end_turn(recorded=True, tool_calls=1) == Ending("success")


@pytest.mark.parametrize(
    ("turns", "limit", "failure_expected"),
    [
        (2, 2, ("max_turns", None)),
        (3, 2, ("max_turns", None)),
        (6, None, ("failed", "loop")),
        (6, 20, ("failed", "loop")),
    ],
)
def test_max_turn_requests_is_a_loop_or_the_limit(
    turns: int, limit: int | None, failure_expected: tuple[str, str | None]
) -> None:
    """`max_turn_requests` means `max_turns` if the limit was reached, and a loop otherwise."""
    assert (
        outcome_and_kind(judge_with(stop_reason="max_turn_requests", turns=turns, max_turns=limit))
        == failure_expected
    )


def test_a_conversation_that_is_too_long() -> None:
    """`max_tokens` means that the conversation is too long: it is not retryable, and the hint
    suggests a new session.
    """
    ending = judge_with(stop_reason="max_tokens")
    assert outcome_and_kind(ending) == ("failed", "blocked")
    assert ending.failure is not None
    assert not ending.failure.retryable
    assert "new session" in ending.failure.hint


@pytest.mark.parametrize(
    ("reason", "failure_expected"),
    [("cancelled", "cut_off"), ("refusal", "blocked"), ("odd", "protocol"), (None, "protocol")],
)
def test_other_stop_reasons_are_no_success(reason: str | None, failure_expected: str) -> None:
    """A cancellation that we did not request, a refusal and unknown stop reasons are failures."""
    assert outcome_and_kind(judge_with(stop_reason=reason)) == ("failed", failure_expected)


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (-9, "", "the CLI was ended by SIGKILL and gave no result"),
        (0, REPEATED, "the CLI ended with exit code 0 and gave no result"),
        (41, REPEATED, "the CLI ended with exit code 41 and gave no result"),
        (
            -6,
            f"{REPEATED}FATAL ERROR: Reached heap limit",
            "the CLI was ended by SIGABRT and gave no result: FATAL ERROR: Reached heap limit",
        ),
    ],
)
def test_a_process_that_is_gone_has_crashed(code: int, stderr: str, expected: str) -> None:
    """If the process is gone, the turn crashed, whatever the exit code, earlier text and messages
    about other chats.
    """
    ending = judge_with(gone=True, exit_code=code, stderr=stderr, answer="on my way")
    assert outcome_and_kind(ending) == ("failed", "crashed")
    assert ending.failure is not None
    assert (ending.reason, ending.failure.exit_code, ending.failure.retryable) == (expected, code, True)


@pytest.mark.parametrize(
    ("code", "message", "data"),
    [
        (-32602, "Session not found: s-1", None),
        (-32603, "Internal error", '{"details":"Session not found: s-1"}'),
    ],
)
def test_an_unknown_session(code: int, message: str, data: str | None) -> None:
    """Releases report an unknown session with different texts.

    Each is `session_not_found`, and the caller should drop the id.
    """
    ending = judge_with(code=code, message=message, data=data)
    assert outcome_and_kind(ending) == ("failed", "session_not_found")
    assert ending.reason == 'the CLI process has no session "s-1"'
    assert ending.clear_session


@pytest.mark.parametrize(
    ("code", "message", "data", "failure_expected"),
    [
        (
            -32603,
            "Internal error",
            '[{"code":"invalid_union","message":"Invalid input"}]',
            ("protocol", False),
        ),
        (-32601, '"Method not found": session/x', None, ("protocol", False)),
        (-32603, "Internal error", '{"details":"x is undefined\\n  at y"}', ("crashed", True)),
        (-32603, "Internal error", "x is undefined", ("crashed", True)),
    ],
)
def test_rejected_and_failed_requests(
    code: int, message: str, data: str, failure_expected: tuple[str, bool]
) -> None:
    """A request that the CLI rejects is a protocol error; a request at which it fails is a crash."""
    failure = judge_with(code=code, message=message, data=data).failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == failure_expected
    assert "\n" not in failure.message


SETTINGS = "Error in /w/.gemini/settings.json: Expected property name or '}' in JSON at position 13 (line 2 column 12)"


@pytest.mark.parametrize(
    ("code", "message", "details", "failure_expected", "expected"),
    [
        (-32000, "Gemini API key is missing or not configured.", None, "auth", "no credentials found"),
        (-32000, "Authentication required", None, "auth", "no credentials found"),
        (-32000, "The token has expired.", None, "auth", "The token has expired."),
        (
            -32000,
            "This client is no longer supported for Gemini Code Assist for individuals.",
            None,
            "tier_retired",
            "no longer serves",
        ),
        (
            -32603,
            "Internal error",
            "Directory does not exist: /w/x y",
            "bad_option",
            "`cwd`: /w/x y is not an existing folder",
        ),
        (
            -32603,
            "Internal error",
            "Path is not a directory: /w/f",
            "bad_option",
            "`cwd`: /w/f is not an existing folder",
        ),
        (-32603, "Internal error", f"{SETTINGS}\nPlease fix the configuration file(s).", "config", SETTINGS),
    ],
)
def test_a_session_that_cannot_be_opened(
    code: int, message: str, details: str | None, failure_expected: str, expected: str
) -> None:
    """A missing sign-in, a missing folder or broken settings give a failure with one line that is
    not retryable.
    """
    ending = judge_opening(code, message, json.dumps({"details": details}) if details else None)
    assert outcome_and_kind(ending) == ("failed", failure_expected)
    assert ending.failure is not None
    assert expected in ending.failure.message
    assert "\n" not in ending.failure.message
    assert not ending.failure.retryable


@pytest.mark.parametrize(
    ("exit_code", "stderr", "failure_expected", "expected"),
    [
        (52, f"\x1b[31m{SETTINGS}\nPlease fix the configuration file(s).\x1b[0m\n", "config", SETTINGS),
        (1, "Unknown argument: nonsense\nUsage: gemini", "cli_unsupported", "Unknown argument: nonsense"),
        (-9, "", "cut_off", "SIGKILL"),
        (1, "TypeError: x\n    at y", "crashed", "TypeError: x"),
    ],
)
def test_a_process_that_does_not_start(
    exit_code: int, stderr: str, failure_expected: str, expected: str
) -> None:
    """A process that ends before it has a session is judged by exit code and stderr, as a headless
    run.
    """
    ending = judge_opening(None, None, None, stderr, exit_code)
    assert outcome_and_kind(ending) == ("failed", failure_expected)
    assert ending.failure is not None
    assert expected in ending.failure.message
    assert "\x1b" not in ending.failure.message
