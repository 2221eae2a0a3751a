"""Tests of the one gateway of a process: its runs share it, and it exists while a run needs it."""

from __future__ import annotations

import gc
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from geminids.gateway import Reply, Script
from geminids.gateway.lease import TOKEN_PREFIX, Lease
from geminids.gateway.messages import Answered, GatewayMessage, Halt
from geminids.gateway.registry import OpenLease, keep_open, open_lease
from geminids.gateway.script.scripted_upstream import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"


class Run:
    """A run from the gateway's point of view: a lease and the messages that it received."""

    def __init__(self, answer: str = "hi", **reply: Any) -> None:
        self.messages: list[GatewayMessage] = []
        self.changed = threading.Condition()
        self.open: OpenLease = open_lease(
            Lease(Scripted(Script((), default=Reply(text=answer, **reply))), self._receive)
        )

    def _receive(self, message: GatewayMessage) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait_for(self, kind: type[GatewayMessage], timeout: float = 10) -> Any:
        """Wait for the first message of this kind and return it."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(isinstance(m, kind) for m in self.messages), timeout)
            return next(message for message in self.messages if isinstance(message, kind))

    def ask(self, text: str = "hello") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.open.url.removeprefix("http://"), timeout=20)
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": text}]}]})
        try:
            connection.request("POST", STREAM, body, {"x-goog-api-key": self.open.token})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "geminids-gateway"]


def _is_listening(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def no_gateway_left() -> Iterator[None]:
    """Check that no gateway thread and no file descriptor is left after each test."""
    gc.collect()
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    for thread in _threads():
        thread.join(10)
    assert _threads() == []
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_runs_share_one_gateway() -> None:
    """All runs of a process share one address and one thread. Each run has its own token."""
    first, second = Run("to one"), Run("to two")
    first.open.begin()
    second.open.begin()
    assert first.open.url == second.open.url
    assert first.open.token != second.open.token
    assert first.open.token.startswith(TOKEN_PREFIX)
    assert "to one" in first.ask()[1]
    assert "to two" in second.ask()[1]
    assert len(_threads()) == 1
    first.open.close()
    assert "to two" in second.ask()[1]
    second.open.close()


def test_gateway_listens_only_on_loopback() -> None:
    """The gateway listens on 127.0.0.1, so no other machine can reach it."""
    run = Run()
    assert run.open.url.startswith("http://127.0.0.1:")
    run.open.close()


def test_request_before_begin_is_answered_later() -> None:
    """The port is open before the gateway's thread starts.
    A request that arrives early is answered after `begin`."""
    run = Run("late")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(run.ask)
        assert _threads() == []
        run.open.begin()
        assert "late" in asked.result(20)[1]
    run.open.close()


def test_gateway_ends_with_its_last_lease() -> None:
    """The gateway ends with its last lease, and the next lease starts a new one.
    The new gateway refuses the old token."""
    first = Run()
    first.open.begin()
    assert first.ask()[0] == 200
    first.open.close()
    for thread in _threads():
        thread.join(10)
    assert not _is_listening(first.open.url)
    second = Run()
    second.open.begin()
    first.open._gateway = second.open._gateway  # like a process with an old token that knows the new address
    assert first.ask()[0] == 403
    assert second.ask()[0] == 200
    second.open.close()
    assert [message for message in first.messages + second.messages if isinstance(message, Halt)] == []


def test_closing_a_lease_that_never_began() -> None:
    """If a run ends before its gateway began, closing the lease closes the port."""
    run = Run()
    url = run.open.url
    run.open.close()
    assert not _is_listening(url)


def test_closing_a_lease_twice() -> None:
    """Closing a lease a second time has no effect on a later gateway."""
    first = Run()
    first.open.begin()
    first.open.close()
    second = Run()
    second.open.begin()
    first.open.close()
    assert second.ask()[0] == 200
    second.open.close()


def test_keep_open_keeps_the_address() -> None:
    """`keep_open` keeps the gateway's address for warm processes that outlive a chat.
    The token of that lease itself is not answered."""
    kept = keep_open()
    kept.begin()
    first = Run()
    first.open.close()
    second = Run("still here")
    assert second.open.url == kept.url
    assert "still here" in second.ask()[1]
    second.open.close()
    second.open.lease.token = kept.token
    with pytest.raises((OSError, http.client.HTTPException)):
        second.ask()
    kept.close()


def _kill(run: Run) -> None:
    """End the gateway's thread with an exception, as a bug in our code would."""
    server = run.open._gateway._server
    assert server._loop is not None
    server._loop.call_soon_threadsafe(_raise)


def _raise() -> None:
    raise SystemExit("killed")


def test_every_run_is_notified_when_the_gateway_dies() -> None:
    """If the gateway's thread dies, every open run gets a `gone` message with the reason.
    A waiting client is disconnected, and the next run gets a new gateway."""
    waiting, idle, over = Run(stall=True), Run(), Run()
    waiting.open.begin()
    over.open.close()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(waiting.ask)
        assert waiting.open._gateway._server.wait_for_requests(1)
        _kill(waiting)
        for run in (waiting, idle):
            halt = run.wait_for(Halt)
            assert halt.kind == "gone"
            assert "has ended: SystemExit: killed" in halt.message
            assert halt.hint
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.result(20)
    assert [message for message in over.messages if isinstance(message, Halt)] == []
    assert not _is_listening(waiting.open.url)
    # The next run gets a new gateway, and closing the old leases does not affect it.
    after = Run("from the new gateway")
    after.open.begin()
    assert "from the new gateway" in after.ask()[1]
    waiting.open.close()
    idle.open.close()
    assert "from the new gateway" in after.ask()[1]
    after.open.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_forked_child_has_its_own_gateway() -> None:
    """A forked child gets its own gateway. A lease that it closes stays open in the parent."""
    run = Run("of the parent")
    run.open.begin()
    assert run.ask()[0] == 200
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own = Run("of the child")
            own.open.begin()
            other = own.open.url != run.open.url
            answered = "of the child" in own.ask()[1]
            own.open.close()
            run.open.close()
            code = 0 if other and answered else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "of the parent" in run.ask()[1]
    run.open.close()


def test_fifty_parallel_runs() -> None:
    """Each of fifty parallel runs gets only its own answers and messages."""
    runs = [Run(f"answer {number:02}") for number in range(50)]
    runs[0].open.begin()
    try:
        with ThreadPoolExecutor(50) as pool:
            answers = [pool.submit(run.ask) for run in runs for _ in range(4)]
            texts = [answer.result(30)[1] for answer in answers]
        assert all(f"answer {number // 4:02}" in text for number, text in enumerate(texts))
        for run in runs:
            run.wait_for(Answered)
            assert sorted(message.number for message in run.messages if isinstance(message, Answered)) == [
                1,
                2,
                3,
                4,
            ]
    finally:
        for run in runs:
            run.open.close()


def test_large_body_without_a_valid_token_is_refused() -> None:
    """A request body of 1 MB is refused without a valid token and accepted with one."""
    run = Run()
    run.open.begin()
    try:
        assert run.ask("x" * 1_000_000)[0] == 200
        token, run.open.lease.token = run.open.token, "geminids-run-nobody"
        status: object
        try:
            status = run.ask("x" * 1_000_000)[0]
        except OSError:
            status = "closed while it was sent"
        assert status in (413, "closed while it was sent")
        assert run.ask("short")[0] == 403
        run.open.lease.token = token
    finally:
        run.open.close()
