"""How what real releases answer on ACP is judged; tests/shared/warm_endings.py has the scripts for both lanes."""

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
# What the CLI writes when it goes, about requests of any of its chats.
REPEATED = "Error handling request {\n  id: 3\n} { code: 500, message: 'of another chat' }\n"


def turn(**evidence: Any) -> Ending:
    return judge_turn(TurnEvidence(**evidence))


def done(**evidence: Any) -> Ending:
    return turn(stop_reason="end_turn", **evidence)


def kind(ending: Ending) -> tuple[str, str | None]:
    return ending.outcome, ending.failure.kind if ending.failure else None


@pytest.mark.parametrize(
    ("code", "message", "found"),
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
def test_the_apis_errors_are_what_they_are_headless(code: int, message: str, found: tuple[Any, ...]) -> None:
    """The code is the status, or 500 for want of one: then the words say what it was, and else nobody knows."""
    ending = turn(code=code, message=message)
    failure = ending.failure
    assert failure is not None
    assert (failure.kind, failure.http_status, failure.retryable, failure.retry_after) == found
    assert failure.hint
    assert ending.reason == failure.message
    assert "{" not in failure.message


def test_words_do_not_outrank_a_status() -> None:
    """A status that was told stands, whatever else the message says."""
    failure = turn(code=503, message="The quota service was not found.").failure
    assert failure is not None
    assert (failure.kind, failure.http_status) == ("server", 503)


@pytest.mark.parametrize("recorded", [True, None])
def test_an_answer_is_a_success(recorded: bool | None) -> None:
    """Thoughts before it and stderr of others take nothing from it."""
    assert done(answer="Hello", recorded=recorded, tool_calls=2, stderr=REPEATED) == Ending("success")


def test_an_answer_that_the_cli_threw_away_is_no_success() -> None:
    """A malformed call or a stream without an end: the text came, and the journal has no message of it."""
    ending = done(answer="I call", recorded=False)
    assert kind(ending) == ("failed", "blocked")
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
    """A filter, a blocked prompt, thoughts alone: ACP calls each of them end_turn."""
    ending = done(**evidence)
    assert kind(ending) == ("failed", "blocked")
    assert ending.failure is not None
    assert ending.failure.retryable


def test_a_tool_and_not_a_word_more_is_a_success_where_the_cli_keeps_it() -> None:
    """As headless: an empty message after a tool, which the journal has, means: done."""
    assert done(recorded=True, tool_calls=1) == Ending("success")


@pytest.mark.parametrize(
    ("turns", "limit", "found"),
    [
        (2, 2, ("max_turns", None)),
        (3, 2, ("max_turns", None)),
        (6, None, ("failed", "loop")),
        (6, 20, ("failed", "loop")),
    ],
)
def test_one_stop_reason_is_a_loop_or_the_limit(
    turns: int, limit: int | None, found: tuple[str, str | None]
) -> None:
    """The limit where it was reached, else the model repeated itself."""
    assert kind(turn(stop_reason="max_turn_requests", turns=turns, max_turns=limit)) == found


def test_a_conversation_that_is_too_long_was_never_sent() -> None:
    """`max_tokens` comes before the request: trying again does not help."""
    ending = turn(stop_reason="max_tokens")
    assert kind(ending) == ("failed", "blocked")
    assert ending.failure is not None
    assert not ending.failure.retryable
    assert "new session" in ending.failure.hint


@pytest.mark.parametrize(
    ("reason", "found"),
    [("cancelled", "cut_off"), ("refusal", "blocked"), ("odd", "protocol"), (None, "protocol")],
)
def test_other_stop_reasons_are_no_success(reason: str | None, found: str) -> None:
    """A cancellation that was not ours, a refusal, and what nobody knows."""
    assert kind(turn(stop_reason=reason)) == ("failed", found)


@pytest.mark.parametrize(
    ("code", "stderr", "told"),
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
def test_a_process_that_is_gone_has_crashed(code: int, stderr: str, told: str) -> None:
    """However it went, and whatever it says of other chats; even where an answer had been on its way."""
    ending = turn(gone=True, exit_code=code, stderr=stderr, answer="on my way")
    assert kind(ending) == ("failed", "crashed")
    assert ending.failure is not None
    assert (ending.reason, ending.failure.exit_code, ending.failure.retryable) == (told, code, True)


@pytest.mark.parametrize(
    ("code", "message", "data"),
    [
        (-32602, "Session not found: s-1", None),
        (-32603, "Internal error", '{"details":"Session not found: s-1"}'),
    ],
)
def test_a_session_that_the_process_does_not_have(code: int, message: str, data: str | None) -> None:
    """0.61 and 0.41 word it differently; the caller is told to forget the id."""
    ending = turn(code=code, message=message, data=data)
    assert kind(ending) == ("failed", "session_not_found")
    assert ending.reason == 'the process has no session "s-1"'
    assert ending.clear_session


@pytest.mark.parametrize(
    ("code", "message", "data", "found"),
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
def test_our_mistakes_and_the_clis_are_told_apart(
    code: int, message: str, data: str, found: tuple[str, bool]
) -> None:
    """A request that it does not take, and one that it fails at."""
    failure = turn(code=code, message=message, data=data).failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == found
    assert "\n" not in failure.message


SETTINGS = "Error in /w/.gemini/settings.json: Expected property name or '}' in JSON at position 13 (line 2 column 12)"


@pytest.mark.parametrize(
    ("code", "message", "details", "found", "told"),
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
        (-32603, "Internal error", "Directory does not exist: /w/x y", "bad_option", "cwd: /w/x y is gone"),
        (-32603, "Internal error", "Path is not a directory: /w/f", "bad_option", "cwd: /w/f is gone"),
        (-32603, "Internal error", f"{SETTINGS}\nPlease fix the configuration file(s).", "config", SETTINGS),
    ],
)
def test_a_session_that_cannot_be_opened(
    code: int, message: str, details: str | None, found: str, told: str
) -> None:
    """No sign-in, no folder, broken settings: as a headless run is told."""
    ending = judge_opening(code, message, json.dumps({"details": details}) if details else None)
    assert kind(ending) == ("failed", found)
    assert ending.failure is not None
    assert told in ending.failure.message
    assert "\n" not in ending.failure.message
    assert not ending.failure.retryable


@pytest.mark.parametrize(
    ("exit_code", "stderr", "found", "told"),
    [
        (52, f"\x1b[31m{SETTINGS}\nPlease fix the configuration file(s).\x1b[0m\n", "config", SETTINGS),
        (1, "Unknown argument: nonsense\nUsage: gemini", "cli_unsupported", "Unknown argument: nonsense"),
        (-9, "", "cut_off", "SIGKILL"),
        (1, "TypeError: x\n    at y", "crashed", "TypeError: x"),
    ],
)
def test_a_process_that_does_not_come_up(exit_code: int, stderr: str, found: str, told: str) -> None:
    """It is still nobody's but this caller's: judged by exit code and stderr, as a headless run."""
    ending = judge_opening(None, None, None, stderr, exit_code)
    assert kind(ending) == ("failed", found)
    assert ending.failure is not None
    assert told in ending.failure.message
    assert "\x1b" not in ending.failure.message
