"""Tests of `Lease.in_flight`: what a run can read about its requests while they are in progress."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from geminids.gateway import Reply, Script
from geminids.gateway.lease import Lease
from geminids.gateway.limits.rate_limiter import RateLimiter
from geminids.gateway.registry import open_lease
from geminids.gateway.script.scripted_upstream import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"


def wait_until(condition: Callable[[], object], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def ask(opened: Any, timeout: float = 20) -> None:
    connection = http.client.HTTPConnection(opened.url.removeprefix("http://"), timeout=timeout)
    try:
        connection.request("POST", STREAM, json.dumps({"contents": []}), {"x-goog-api-key": opened.token})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # the client timed out
    finally:
        connection.close()


@pytest.mark.parametrize("answer_begins", [False, True])
def test_request_is_listed_until_it_ends(answer_begins: bool) -> None:
    """`in_flight` lists a request with its number, model and times until it ends.
    The time of the last byte is set only once the answer has begun."""
    reply = Reply(text=["one", "two"], pause=1.0) if answer_begins else Reply(text="late", delay=1.0)
    lease = Lease(Scripted(Script((), default=reply)), lambda message: None)
    opened = open_lease(lease)
    opened.begin()
    thread = threading.Thread(target=ask, args=(opened,))
    thread.start()
    assert wait_until(
        lambda: lease.in_flight() and (not answer_begins or lease.in_flight()[0].first is not None)
    )
    (listed,) = lease.in_flight()
    assert (listed.number, listed.model, listed.attempt) == (1, "gemini-test", 1)
    assert wait_until(lambda: listed.left is not None)
    assert (listed.last is not None) is answer_begins
    thread.join(20)
    assert wait_until(lambda: lease.in_flight() == [])
    opened.close()


def test_waiting_request_has_a_reason_and_a_time() -> None:
    """A request that waits for the rate limit is listed with the reason and the end of its wait."""
    lease = Lease(
        Scripted(Script((), default=Reply(text="hi"))), lambda message: None, rate_limiter=RateLimiter(1)
    )
    opened = open_lease(lease)
    opened.begin()
    ask(opened)
    thread = threading.Thread(target=ask, args=(opened, 2))
    thread.start()
    assert wait_until(lambda: lease.in_flight() and lease.in_flight()[0].held_until is not None)
    (listed,) = lease.in_flight()
    assert (listed.number, listed.left) == (2, None)
    assert listed.held_until is not None and listed.held_until - time.monotonic() > 20
    assert listed.held_why == "the limit is 1 requests a minute"
    thread.join(20)
    assert wait_until(lambda: lease.in_flight() == []), "the request of a disconnected client is still listed"
    opened.close()
