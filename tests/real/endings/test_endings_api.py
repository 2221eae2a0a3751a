"""Outcomes that the API causes: errors, interrupted and invalid answers, filters and loops."""

from __future__ import annotations

from typing import Any

import pytest

from ending_checks import check_ending
from geminids import Notice, Text
from geminids.events.model import Retry

pytestmark = pytest.mark.real


def error_detail(name: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{name}", **more}


def quota_failure(name: str) -> dict[str, Any]:
    return error_detail("QuotaFailure", violations=[{"quotaMetric": "m", "quotaId": name}])


BAD_KEY = {
    "status": 400,
    "error": "API key not valid. Please pass a valid API key.",
    "details": [error_detail("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")],
}
PER_MINUTE = {
    "status": 429,
    "error": "Resource exhausted",
    "details": [
        quota_failure("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        error_detail("RetryInfo", retryDelay="1s"),
    ],
}
PER_DAY = {
    "status": 429,
    "error": "Resource exhausted",
    "details": [quota_failure("GenerateRequestsPerDayPerProjectPerModel-FreeTier")],
}
# The API also sends the errors of a streaming request as an event stream. The CLI then wraps JSON
# in JSON.
AS_STREAM = {"headers": {"content-type": "text/event-stream"}}
deep = pytest.mark.deep


@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (BAD_KEY, "auth", 400),
        pytest.param(BAD_KEY | AS_STREAM, "auth", 400, marks=deep),
        pytest.param(
            {"status": 401, "error": "Invalid authentication credentials."}, "auth", 401, marks=deep
        ),
        pytest.param({"status": 403, "error": "Permission denied on project x."}, "auth", 403, marks=deep),
        ({"status": 404, "error": "models/nope is not found."}, "model_not_found", 404),
        pytest.param(
            {"status": 404, "error": "models/nope is not found.", **AS_STREAM},
            "model_not_found",
            404,
            marks=deep,
        ),
        pytest.param(
            {"status": 400, "error": "The input token count is too high."}, "bad_request", 400, marks=deep
        ),
    ],
)
def test_a_refused_request_fails_at_once(world: Any, reply: dict[str, Any], kind: str, status: int) -> None:
    """A bad key, a missing permission or an unknown model fails after one request, with the API's
    message and without a retry."""
    world.gateway.reply(times=None, **reply)
    events = world.events()
    check_ending(
        events, "failed", kind, http_status=status, retryable=False, message=reply["error"], retry_after=None
    )
    assert len(world.gateway.requests) == 1
    assert not [event for event in events if isinstance(event, Notice) and event.code in ("retry", "gave_up")]


def test_a_minute_quota_is_retryable(world: Any) -> None:
    """Without the gateway, the CLI's stderr line about a retry becomes a notice, and the failure
    says when to try again."""
    world.gateway.reply(times=None, **PER_MINUTE)
    events = world.events(max_attempts=2, gateway="off")
    check_ending(events, "failed", "quota_minute", http_status=429, retryable=True, retry_after=1.0)
    notices = [event for event in events if isinstance(event, Notice) and event.code == "retry"]
    assert [notice.retry for notice in notices] == [Retry(1, 429)]
    assert "trying again in" in notices[0].message
    assert [event.message for event in events if isinstance(event, Notice) and event.code == "gave_up"]
    assert len(world.gateway.requests) == 2


@pytest.mark.deep
def test_a_last_attempt_is_no_retry(world: Any) -> None:
    """Without the gateway, the CLI's line about its last failed attempt is not reported as a
    retry."""
    world.gateway.reply(times=None, **PER_MINUTE)
    events = world.events(max_attempts=1, gateway="off")
    check_ending(events, "failed", "quota_minute", http_status=429, retryable=True, retry_after=1.0)
    assert not [event for event in events if isinstance(event, Notice) and event.code == "retry"]


@pytest.mark.deep
def test_a_retry_that_works_is_no_failure(world: Any) -> None:
    """If a retry succeeds, the run is a success, and a notice reports the earlier error."""
    world.gateway.reply(status=503, error="The model is overloaded.")
    world.gateway.reply(text="here again")
    events = world.events(max_attempts=2)
    assert check_ending(events, "success").text == "here again"
    assert [event.retry.http_status for event in events if isinstance(event, Notice) and event.retry] == [503]


def test_a_daily_quota_fails_at_once(world: Any) -> None:
    """A daily quota fails after exactly one request and is not retryable."""
    world.gateway.reply(times=None, **PER_DAY)
    events = world.events(max_attempts=3)
    check_ending(events, "failed", "quota_day", http_status=429, retryable=False)
    assert len(world.gateway.requests) == 1


@pytest.mark.parametrize(
    ("status", "attempts"), [(503, 1), pytest.param(500, 2, marks=deep), pytest.param(503, 2, marks=deep)]
)
def test_a_failing_server_is_retried(world: Any, status: int, attempts: int) -> None:
    """The CLI retries a failing server. Each failure is reported, and the run fails as a server
    error."""
    world.gateway.reply(status=status, error="It is overloaded.", times=None)
    events = world.events(max_attempts=attempts)
    check_ending(events, "failed", "server", http_status=status, retryable=True, message="It is overloaded.")
    retries = [event.retry for event in events if isinstance(event, Notice) and event.retry]
    assert [(retry.attempt, retry.http_status) for retry in retries] == [
        (number, status) for number in range(1, attempts + 1)
    ]
    assert len(world.gateway.requests) == attempts


def test_an_api_out_of_reach_is_a_network_failure(world: Any) -> None:
    """If nothing listens at the API's address, the run fails with the kind `network`, is retryable,
    and has a readable message."""
    world.gateway.close()
    finished = check_ending(
        world.events(max_attempts=1), "failed", "network", http_status=None, retryable=True
    )
    assert "the API could not be reached: " in finished.failure.message
    assert "refused" in finished.failure.message


def test_an_interrupted_answer_keeps_its_text(world: Any) -> None:
    """A run whose answer breaks off fails as `network` and keeps the text that has arrived."""
    world.gateway.reply(text="half of", cut=True, times=None)
    events = world.events(max_attempts=1)
    finished = check_ending(events, "failed", "network", retryable=True)
    assert "".join(event.text for event in events if isinstance(event, Text)) == finished.text == "half of"
    assert "the API could not be reached: " in finished.failure.message


@pytest.mark.parametrize(
    "reply",
    [
        {"garbage": "<html>hi</html>"},
        pytest.param({"garbage": "data: {bad json\n\n"}, marks=deep),
        pytest.param({"garbage": "<html>Bad Gateway</html>", "status": 502}, marks=deep),
    ],
)
def test_an_invalid_answer_is_a_server_error(world: Any, reply: dict[str, Any]) -> None:
    """An answer that is not the API's, such as a proxy's HTML page, is reported as an invalid
    answer."""
    world.gateway.reply(times=None, **reply)
    finished = check_ending(world.events(max_attempts=1), "failed", "server", retryable=True)
    assert "invalid answer" in finished.failure.message


@pytest.mark.parametrize(
    ("reply", "retryable"),
    [
        pytest.param({"finish": "SAFETY", "empty": True}, False, marks=deep),
        pytest.param({"blocked": "SAFETY"}, False, marks=deep),
        pytest.param({"empty": True}, True, marks=deep),
        pytest.param({"finish": "RECITATION", "empty": True}, False, marks=deep),
        pytest.param({"thought": "hmm"}, True, marks=deep),
    ],
)
def test_a_missing_answer_is_a_failure(world: Any, reply: dict[str, Any], retryable: bool) -> None:
    """A filtered answer, a blocked prompt or an empty answer fails the run, although the CLI exits
    with 0."""
    world.gateway.reply(times=None, **reply)
    finished = check_ending(world.events(), "failed", "blocked", http_status=None, exit_code=0)
    assert finished.text == ""
    assert finished.failure.retryable == retryable


def test_a_loop_is_a_failure(world: Any) -> None:
    """A run in which the CLI stops a loop fails, although the CLI reports success."""
    world.gateway.reply(calls=[("read_file", {"file_path": "nope.txt"})], times=None)
    events = world.events()
    check_ending(events, "failed", "loop", retryable=False, exit_code=0)
    assert [event.level for event in events if isinstance(event, Notice) and event.code == "loop"] == [
        "warning"
    ]


def test_max_turns_is_an_outcome(world: Any) -> None:
    """When the CLI exits with 53, the outcome is `max_turns` and not `failed`, and the reason names
    the limit."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})], times=None)
    finished = check_ending(world.events(max_turns=2), "max_turns")
    assert finished.exit_code == 53
    assert "max_turns" in finished.reason
    assert len(world.gateway.requests) == 2
