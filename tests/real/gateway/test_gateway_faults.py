"""Faults of the API behind the gateway: the CLI receives what the API sent, and the failure has the
right kind."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import gateway_runs
import geminids
from collect_events import select_events
from fake_google import FakeGoogle, Fault, certificate
from gateway_runs import KEY, RELEASES
from geminids import Notice
from geminids.gateway import Reply, Request

pytestmark = pytest.mark.real

deep = pytest.mark.deep
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
Answer = Reply | Fault


@pytest.fixture(params=RELEASES)
def world(request: pytest.FixtureRequest, make_world: Any) -> Any:
    return make_world(request.param)


def options_with_url(world: Any, url: str, **fields: Any) -> geminids.Options:
    return gateway_runs.options_for(world, url, **{"max_attempts": 1, **fields})


def always_answer(answer: Answer) -> Callable[[Request], Answer | None]:
    return lambda request: answer if request.method == "stream" else None


def answer_once(answer: Answer, *then: Reply) -> list[Answer]:
    return [answer, *(then or (Reply(text="done"),))]


def run_against(world: Any, script: Any, **fields: Any) -> tuple[list[Any], FakeGoogle]:
    """Run a prompt against a server with this script; return the events and the server."""
    with FakeGoogle(script, with_key=KEY) as google:
        return list(geminids.stream_sync("hello", options_with_url(world, google.url, **fields))), google


@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (Reply(status=429, error="Resource exhausted", details=[WAIT]), "quota_minute", 429),
        pytest.param(Reply(status=429, error="Resource exhausted"), "quota_minute", 429, marks=deep),
        pytest.param(Reply(status=500, error="Internal"), "server", 500, marks=deep),
        pytest.param(Reply(status=400, error="Bad thing"), "bad_request", 400, marks=deep),
    ],
)
def test_api_errors_are_unchanged(world: Any, reply: Reply, kind: str, status: int) -> None:
    """An API error gives the same failure with and without the gateway, and a notice reports each
    failed request."""
    events, google = run_against(world, always_answer(reply))
    failure = events[-1].failure
    with FakeGoogle(always_answer(reply), with_key=KEY) as other:
        direct = geminids.ask_sync("hello", options_with_url(world, other.url, gateway="off")).failure
    assert direct is not None
    assert (failure.kind, failure.http_status) == (kind, status) == (direct.kind, direct.http_status)
    assert failure.message == direct.message
    notices: list[Any] = [
        event for event in select_events(events, Notice) if event.code in ("retry", "request")
    ]
    attempts = range(1, len(google.asked) + 1)
    assert [(notice.retry.attempt, notice.retry.http_status) for notice in notices] == [
        (n, status) for n in attempts
    ]


@pytest.mark.deep
def test_a_retry_is_reported_when_it_happens(world: Any) -> None:
    """The gateway reports a 429 that the CLI retries with one notice. The CLI's line on stderr adds
    no second notice."""
    events, google = run_against(
        world, answer_once(Reply(status=429, error="Resource exhausted", details=[WAIT])), max_attempts=3
    )
    assert (events[-1].outcome, events[-1].answer) == ("success", "done")
    notice: Any
    (notice,) = select_events(events, Notice, code="retry")
    assert (notice.retry.attempt, notice.retry.http_status) == (1, 429)
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
    """A broken answer fails the run, and the gateway's notice reports the failed request."""
    events, google = run_against(world, always_answer(fault))
    finished = events[-1]
    assert finished.outcome == "failed"
    assert finished.failure.kind in ("network", "cut_off", "server"), finished.failure
    assert select_events(events, Notice, code="retry"), "the gateway did not report it"
    assert google.wait_until(lambda: google.open == 0)


@pytest.mark.deep
def test_a_slow_first_byte_and_a_huge_answer(world: Any) -> None:
    """A slow first byte is not a fault, and an answer of 50 MB arrives complete."""
    # The pieces differ, because the CLI would take repeated text for a loop.
    pieces = [random.Random(number).randbytes(50_000).hex() for number in range(500)]
    events, _ = run_against(world, [Reply(text=pieces, delay=3)])
    assert events[-1].outcome == "success", events[-1].failure
    assert events[-1].text == "".join(pieces)
    used: Any
    (used,) = select_events(events, geminids.TokensUsed)
    assert used.first_byte_ms >= 3000


def test_an_unreachable_api(world: Any) -> None:
    """The failure names a closed port or an unknown host as the reason, not only `fetch failed`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = geminids.ask_sync(
            "hello", options_with_url(world, f"http://127.0.0.1:{taken.getsockname()[1]}")
        )
    assert result.failure is not None
    assert (result.failure.kind, "refused" in result.failure.message.lower()) == ("network", True)
    result = geminids.ask_sync("hello", options_with_url(world, "http://api.nowhere.invalid"))
    assert result.failure is not None
    assert (result.failure.kind, "api.nowhere.invalid" in result.failure.message) == ("network", True)


@pytest.mark.parametrize("how", ["run", pytest.param("chat", marks=deep)])
def test_the_router_of_an_unreachable_api(world: Any, how: str) -> None:
    """`max_attempts` limits the model router too: it fails once, then the conversation fails once. The
    failure is that of the API, which the caller may retry."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = options_with_url(world, f"http://127.0.0.1:{taken.getsockname()[1]}", model="auto")
        stream = geminids.stream_sync("hello", options) if how == "run" else anyio.run(_chat_events, options)
        events: list[Any] = list(stream)
    retries = [notice for notice in select_events(events, Notice) if notice.code == "retry"]
    assert [notice.retry.attempt for notice in retries if notice.retry] == [1, 1]
    failure = events[-1].failure
    assert (failure.kind, failure.retryable, "refused" in failure.message.lower()) == ("network", True, True)


async def _chat_events(options: geminids.Options) -> list[Any]:
    async with geminids.Pool(options) as pool, pool.chat() as chat, chat.send("hello") as turn:
        return [event async for event in turn]


@pytest.mark.deep
def test_a_router_that_fails_once(world: Any) -> None:
    """With `max_attempts` 1, a router that fails is not asked again, and the conversation goes on."""
    events, google = run_against(
        world,
        lambda request: (
            Reply(status=500, error="no", method="any")
            if request.method == "generate"
            else Reply(text="fine")
        ),
        model="auto",
    )
    assert events[-1].outcome == "success"
    assert [asked.request.method for asked in google.asked] == ["generate", "stream"]


@pytest.mark.deep
def test_an_untrusted_certificate(world: Any, tmp_path: Path) -> None:
    """A certificate that is not trusted is reported as the reason. With the CA configured as for
    the CLI, the run succeeds."""
    ca_file = certificate(tmp_path)
    with FakeGoogle(always_answer(Reply(text="done")), with_key=KEY, tls=ca_file) as google:
        result = geminids.ask_sync("hello", options_with_url(world, google.url))
        with_ca = geminids.ask_sync(
            "hello", options_with_url(world, google.url, env={"NODE_EXTRA_CA_CERTS": str(ca_file)})
        )
    assert result.failure is not None
    assert (result.failure.kind, "certificate" in result.failure.message.lower()) == ("network", True)
    assert with_ca.ok, with_ca.failure


def test_a_redirect_is_not_followed(world: Any) -> None:
    """Neither the gateway nor the CLI follows a redirect. The failure names its target."""
    with FakeGoogle(always_answer(Reply(text="stolen"))) as other:
        redirect = Fault(
            "raw", data=f"HTTP/1.1 307 Away\r\nlocation: {other.url}/\r\ncontent-length: 0\r\n\r\n".encode()
        )
        events, _ = run_against(world, always_answer(redirect))
        assert other.asked == []
    failure = events[-1].failure
    assert (failure.kind, other.url in failure.message) == ("bad_request", True)
