"""How runs end that the API has the last word on: its errors, its silence, its filters."""

from __future__ import annotations

from typing import Any

import pytest

from endings import ended
from geminids import Notice, Text
from geminids.events.model import Retry

pytestmark = pytest.mark.real


def reason(name: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{name}", **more}


def quota(name: str) -> dict[str, Any]:
    return reason("QuotaFailure", violations=[{"quotaMetric": "m", "quotaId": name}])


BAD_KEY = {
    "status": 400,
    "error": "API key not valid. Please pass a valid API key.",
    "details": [reason("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")],
}
PER_MINUTE = {
    "status": 429,
    "error": "Resource exhausted",
    "details": [
        quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        reason("RetryInfo", retryDelay="1s"),
    ],
}
PER_DAY = {
    "status": 429,
    "error": "Resource exhausted",
    "details": [quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")],
}
# The API answers a streaming request in the type of the stream, errors too: the CLI then wraps JSON in JSON.
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
def test_what_the_api_refuses_fails_at_once(
    world: Any, reply: dict[str, Any], kind: str, status: int
) -> None:
    """A bad key, a lacking right, an unknown model: one request, the API's own sentence, and no retry."""
    world.gateway.reply(times=None, **reply)
    events = world.events()
    ended(
        events, "failed", kind, http_status=status, retryable=False, message=reply["error"], retry_after=None
    )
    assert len(world.gateway.requests) == 1
    assert not [event for event in events if isinstance(event, Notice) and event.code in ("retry", "gave_up")]


def test_a_quota_by_the_minute_is_worth_waiting_for(world: Any) -> None:
    """Without the gateway, stderr tells of the retry while it happens; the failure says when to come back."""
    world.gateway.reply(times=None, **PER_MINUTE)
    events = world.events(max_attempts=2, gateway="off")
    ended(events, "failed", "quota_minute", http_status=429, retryable=True, retry_after=1.0)
    told = [event for event in events if isinstance(event, Notice) and event.code == "retry"]
    assert [notice.retry for notice in told] == [Retry(1, 429)]
    assert "trying again in" in told[0].message
    assert [event.message for event in events if isinstance(event, Notice) and event.code == "gave_up"]
    assert len(world.gateway.requests) == 2


@pytest.mark.deep
def test_a_last_attempt_is_no_retry(world: Any) -> None:
    """Without the gateway: the CLI words both alike, in two lines; only the second says that it has given up."""
    world.gateway.reply(times=None, **PER_MINUTE)
    events = world.events(max_attempts=1, gateway="off")
    ended(events, "failed", "quota_minute", http_status=429, retryable=True, retry_after=1.0)
    assert not [event for event in events if isinstance(event, Notice) and event.code == "retry"]


@pytest.mark.deep
def test_a_retry_that_works_is_no_failure(world: Any) -> None:
    """Errors on the way are notices, not the ending."""
    world.gateway.reply(status=503, error="The model is overloaded.")
    world.gateway.reply(text="here again")
    events = world.events(max_attempts=2)
    assert ended(events, "success").text == "here again"
    assert [event.retry.http_status for event in events if isinstance(event, Notice) and event.retry] == [503]


def test_a_quota_by_the_day_fails_at_once(world: Any) -> None:
    """No wait of seconds helps: exactly one request, not retryable."""
    world.gateway.reply(times=None, **PER_DAY)
    events = world.events(max_attempts=3)
    ended(events, "failed", "quota_day", http_status=429, retryable=False)
    assert len(world.gateway.requests) == 1


@pytest.mark.parametrize(
    ("status", "attempts"), [(503, 1), pytest.param(500, 2, marks=deep), pytest.param(503, 2, marks=deep)]
)
def test_a_failing_server_is_worth_another_try(world: Any, status: int, attempts: int) -> None:
    """The CLI tries as often as it may, each failure is reported, and then the failure is the server's."""
    world.gateway.reply(status=status, error="It is overloaded.", times=None)
    events = world.events(max_attempts=attempts)
    ended(events, "failed", "server", http_status=status, retryable=True, message="It is overloaded.")
    told = [event.retry for event in events if isinstance(event, Notice) and event.retry]
    assert [(retry.attempt, retry.http_status) for retry in told] == [
        (number, status) for number in range(1, attempts + 1)
    ]
    assert len(world.gateway.requests) == attempts


def test_an_api_out_of_reach_is_a_network_failure(world: Any) -> None:
    """Nothing listens there: retryable, and said in words."""
    world.gateway.close()
    finished = ended(world.events(max_attempts=1), "failed", "network", http_status=None, retryable=True)
    assert "the API could not be reached: " in finished.failure.message
    assert "refused" in finished.failure.message


def test_an_answer_that_breaks_off_keeps_what_came(world: Any) -> None:
    """Half an answer is kept, and is no success."""
    world.gateway.reply(text="half of", cut=True, times=None)
    events = world.events(max_attempts=1)
    finished = ended(events, "failed", "network", retryable=True)
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
def test_garbage_is_the_servers_fault(world: Any, reply: dict[str, Any]) -> None:
    """What is no answer of the API (a proxy's page) is told as that."""
    world.gateway.reply(times=None, **reply)
    finished = ended(world.events(max_attempts=1), "failed", "server", retryable=True)
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
def test_an_answer_that_is_none_is_no_success(world: Any, reply: dict[str, Any], retryable: bool) -> None:
    """A filter, a blocked prompt, nothing at all: exit 0 without an error."""
    world.gateway.reply(times=None, **reply)
    finished = ended(world.events(), "failed", "blocked", http_status=None, exit_code=0)
    assert finished.text == ""
    assert finished.failure.retryable == retryable


def test_a_loop_is_no_success(world: Any) -> None:
    """The CLI stops a model that repeats itself, and calls that success."""
    world.gateway.reply(calls=[("read_file", {"file_path": "nope.txt"})], times=None)
    events = world.events()
    ended(events, "failed", "loop", retryable=False, exit_code=0)
    assert [event.level for event in events if isinstance(event, Notice) and event.code == "loop"] == [
        "warning"
    ]


def test_max_turns_is_an_outcome_of_its_own(world: Any) -> None:
    """Exit 53: not failed, and the reason says which limit it was."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})], times=None)
    finished = ended(world.events(max_turns=2), "max_turns")
    assert finished.exit_code == 53
    assert "max_turns" in finished.reason
    assert len(world.gateway.requests) == 2
