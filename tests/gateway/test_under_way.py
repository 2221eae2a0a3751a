"""What a run's own thread can read of its requests while they are under way."""

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
from geminids.gateway.script.scripted import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"


def soon(holds: Callable[[], object], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def ask(opened: Any, patience: float = 20) -> None:
    connection = http.client.HTTPConnection(opened.url.removeprefix("http://"), timeout=patience)
    try:
        connection.request("POST", STREAM, json.dumps({"contents": []}), {"x-goog-api-key": opened.token})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # it has lost its patience
    finally:
        connection.close()


@pytest.mark.parametrize("begins", [False, True])
def test_a_request_is_there_until_its_end(begins: bool) -> None:
    """Its number, model and times; the first byte only when there was one; nothing once it is over."""
    reply = Reply(text=["one", "two"], pause=1.0) if begins else Reply(text="late", delay=1.0)
    lease = Lease(Scripted(Script((), default=reply)), lambda told: None)
    opened = open_lease(lease)
    opened.begin()
    asking = threading.Thread(target=ask, args=(opened,))
    asking.start()
    assert soon(lambda: lease.in_flight() and (not begins or lease.in_flight()[0].first is not None))
    (seen,) = lease.in_flight()
    assert (seen.number, seen.model, seen.attempt) == (1, "gemini-test", 1)
    assert soon(lambda: seen.left is not None)
    assert (seen.last is not None) is begins
    asking.join(20)
    assert soon(lambda: lease.in_flight() == [])
    opened.close()


def test_one_that_is_held_back_says_why_and_how_long() -> None:
    """The second of two where one may leave in a minute: it has not left, and it is known when it may."""
    lease = Lease(
        Scripted(Script((), default=Reply(text="hi"))), lambda told: None, rate_limiter=RateLimiter(1)
    )
    opened = open_lease(lease)
    opened.begin()
    ask(opened)
    asking = threading.Thread(target=ask, args=(opened, 2))
    asking.start()
    assert soon(lambda: lease.in_flight() and lease.in_flight()[0].held_until is not None)
    (seen,) = lease.in_flight()
    assert (seen.number, seen.left) == (2, None)
    assert seen.held_until is not None and seen.held_until - time.monotonic() > 20
    assert seen.held_why == "the limit is 1 requests a minute"
    asking.join(20)
    assert soon(lambda: lease.in_flight() == []), "who goes away is no longer under way"
    opened.close()
