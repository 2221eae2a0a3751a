"""Faults of the API through the gateway: the CLI meets what the API would have sent, the user the right kind."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geminids
import through_gateway
from complete import of
from fake_google import FakeGoogle, Fault, certificate
from geminids import Notice
from geminids.gateway import Reply, Request
from through_gateway import KEY, RELEASES

pytestmark = pytest.mark.real

deep = pytest.mark.deep
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
Answer = Reply | Fault


@pytest.fixture(params=RELEASES)
def world(request: pytest.FixtureRequest, make_world: Any) -> Any:
    return make_world(request.param)


def through(world: Any, url: str, **fields: Any) -> geminids.Options:
    return through_gateway.through(world, url, **{"max_attempts": 1, **fields})


def always(answer: Answer) -> Callable[[Request], Answer | None]:
    return lambda request: answer if request.method == "stream" else None


def once(answer: Answer, *then: Reply) -> list[Answer]:
    return [answer, *(then or (Reply(text="done"),))]


def asked(world: Any, script: Any, **fields: Any) -> tuple[list[Any], FakeGoogle]:
    with FakeGoogle(script, with_key=KEY) as google:
        return list(geminids.stream_sync("hello", through(world, google.url, **fields))), google


@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (Reply(status=429, error="Resource exhausted", details=[WAIT]), "quota_minute", 429),
        pytest.param(Reply(status=429, error="Resource exhausted"), "quota_minute", 429, marks=deep),
        pytest.param(Reply(status=500, error="Internal"), "server", 500, marks=deep),
        pytest.param(Reply(status=400, error="Bad thing"), "bad_request", 400, marks=deep),
    ],
)
def test_errors_pass_as_they_are(world: Any, reply: Reply, kind: str, status: int) -> None:
    """The failure is the same as without the gateway, and each failed request was told as it happened."""
    events, google = asked(world, always(reply))
    failure = events[-1].failure
    with FakeGoogle(always(reply), with_key=KEY) as other:
        direct = geminids.ask_sync("hello", through(world, other.url, gateway="off")).failure
    assert direct is not None
    assert (failure.kind, failure.http_status) == (kind, status) == (direct.kind, direct.http_status)
    assert failure.message == direct.message
    failed: list[Any] = [event for event in of(events, Notice) if event.code in ("retry", "request")]
    tries = range(1, len(google.asked) + 1)
    assert [(one.retry.attempt, one.retry.http_status) for one in failed] == [(n, status) for n in tries]


@pytest.mark.deep
def test_a_retry_is_told_as_it_happens(world: Any) -> None:
    """A 429 with RetryInfo, tried again by the CLI: one notice from the gateway, none twice from stderr."""
    events, google = asked(
        world, once(Reply(status=429, error="Resource exhausted", details=[WAIT])), max_attempts=3
    )
    assert (events[-1].outcome, events[-1].answer) == ("success", "done")
    failed: Any
    (failed,) = of(events, Notice, code="retry")
    assert (failed.retry.attempt, failed.retry.http_status) == (1, 429)
    assert len(google.asked) == 2


@pytest.mark.parametrize(
    "fault",
    [
        Fault("cut_in_chunk"),
        pytest.param(Fault("reset"), marks=deep),
        pytest.param(Fault("silent"), marks=deep),
        pytest.param(Fault("garbage"), marks=deep),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_broken_answer(world: Any, fault: Fault) -> None:
    """No success: the CLI meets a connection that breaks, and the run says what broke."""
    events, google = asked(world, always(fault))
    end = events[-1]
    assert end.outcome == "failed"
    assert end.failure.kind in ("network", "cut_off", "server"), end.failure
    assert of(events, Notice, code="retry"), "the gateway has told it"
    assert google.wait_until(lambda: google.open == 0)


@pytest.mark.deep
def test_a_slow_first_byte_and_a_huge_answer(world: Any) -> None:
    """Waiting is no fault; 50 MB arrive to the character."""
    # Nothing is said twice: the CLI would take it for a loop.
    pieces = [random.Random(number).randbytes(50_000).hex() for number in range(500)]
    events, _ = asked(world, [Reply(text=pieces, delay=3)])
    assert events[-1].outcome == "success", events[-1].failure
    assert events[-1].text == "".join(pieces)
    used: Any
    (used,) = of(events, geminids.TokensUsed)
    assert used.first_byte_ms >= 3000


def test_nobody_there(world: Any) -> None:
    """A port where nobody listens, and a name that nobody has: the reason is told, not `fetch failed`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = geminids.ask_sync("hello", through(world, f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert result.failure is not None
    assert (result.failure.kind, "refused" in result.failure.message.lower()) == ("network", True)
    result = geminids.ask_sync("hello", through(world, "http://api.nowhere.invalid"))
    assert result.failure is not None
    assert (result.failure.kind, "api.nowhere.invalid" in result.failure.message) == ("network", True)


@pytest.mark.deep
def test_a_certificate_that_nobody_vouches_for(world: Any, tmp_path: Path) -> None:
    """A TLS error is told as one; with the CA named as the CLI would have it, the run succeeds."""
    made = certificate(tmp_path)
    with FakeGoogle(always(Reply(text="done")), with_key=KEY, tls=made) as google:
        result = geminids.ask_sync("hello", through(world, google.url))
        trusting = geminids.ask_sync(
            "hello", through(world, google.url, env={"NODE_EXTRA_CA_CERTS": str(made)})
        )
    assert result.failure is not None
    assert (result.failure.kind, "certificate" in result.failure.message.lower()) == ("network", True)
    assert trusting.ok, trusting.failure


def test_a_redirect_is_not_followed(world: Any) -> None:
    """Neither by us nor by the CLI, which would take the conversation along; the run says where it pointed."""
    with FakeGoogle(always(Reply(text="stolen"))) as other:
        away = Fault(
            "raw", data=f"HTTP/1.1 307 Away\r\nlocation: {other.url}/\r\ncontent-length: 0\r\n\r\n".encode()
        )
        events, _ = asked(world, always(away))
        assert other.asked == []
    failure = events[-1].failure
    assert (failure.kind, other.url in failure.message) == ("bad_request", True)
