"""The one gateway of a process: shared by its runs, there while one of them needs it, and missed when it dies."""

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
from geminids.gateway.script.scripted import Scripted

STREAM = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"


class Run:
    """A run as the gateway knows it: a lease, and what it was told."""

    def __init__(self, says: str = "hi", **reply: Any) -> None:
        self.told: list[GatewayMessage] = []
        self.changed = threading.Condition()
        self.open: OpenLease = open_lease(
            Lease(Scripted(Script((), default=Reply(text=says, **reply))), self._tell)
        )

    def _tell(self, told: GatewayMessage) -> None:
        with self.changed:
            self.told.append(told)
            self.changed.notify_all()

    def hears(self, kind: type[GatewayMessage], timeout: float = 10) -> Any:
        """The first that it is told of this kind."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(isinstance(one, kind) for one in self.told), timeout)
            return next(one for one in self.told if isinstance(one, kind))

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
    """Neither a thread nor a file is left when the last lease is closed."""
    gc.collect()
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    for thread in _threads():
        thread.join(10)
    assert _threads() == []
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_all_runs_share_one() -> None:
    """The same address, a token each, and one thread."""
    one, two = Run("to one"), Run("to two")
    one.open.begin()
    two.open.begin()
    assert one.open.url == two.open.url
    assert one.open.token != two.open.token
    assert one.open.token.startswith(TOKEN_PREFIX)
    assert "to one" in one.ask()[1]
    assert "to two" in two.ask()[1]
    assert len(_threads()) == 1
    one.open.close()
    assert "to two" in two.ask()[1]
    two.open.close()


def test_it_listens_on_loopback_alone() -> None:
    """No other machine can come to it."""
    run = Run()
    assert run.open.url.startswith("http://127.0.0.1:")
    run.open.close()


def test_who_comes_before_it_serves_waits() -> None:
    """The port is open before the thread is: a CLI that is fast is answered when `begin` was called."""
    run = Run("late")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(run.ask)
        assert _threads() == []
        run.open.begin()
        assert "late" in asked.result(20)[1]
    run.open.close()


def test_it_ends_with_the_last_and_begins_anew() -> None:
    """Nothing listens between two runs; the next one has a gateway again, and the old token is not known there."""
    first = Run()
    first.open.begin()
    assert first.ask()[0] == 200
    first.open.close()
    for thread in _threads():
        thread.join(10)
    assert not _is_listening(first.open.url)
    second = Run()
    second.open.begin()
    first.open._gateway = second.open._gateway  # a thief who knows where to go now
    assert first.ask()[0] == 403
    assert second.ask()[0] == 200
    second.open.close()
    assert [told for told in first.told + second.told if isinstance(told, Halt)] == []


def test_one_that_never_began_leaves_nothing() -> None:
    """A run whose CLI could not be spawned."""
    run = Run()
    url = run.open.url
    run.open.close()
    assert not _is_listening(url)


def test_closing_twice_does_no_harm() -> None:
    """Nor does it to the one that came after."""
    one = Run()
    one.open.begin()
    one.open.close()
    two = Run()
    two.open.begin()
    one.open.close()
    assert two.ask()[0] == 200
    two.open.close()


def test_it_is_kept_for_processes_that_know_it() -> None:
    """Warm processes outlive the chats in them: the address stays, and this lease itself answers nobody."""
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
    """End the gateway's thread from within, as a mistake of ours would."""
    server = run.open._gateway._server
    assert server._loop is not None
    server._loop.call_soon_threadsafe(_raise)


def _raise() -> None:
    raise SystemExit("killed")


def test_every_run_hears_that_it_is_gone() -> None:
    """Also one that was waiting for an answer: its connection ends, and its run is told why."""
    waiting, idle, over = Run(stall=True), Run(), Run()
    waiting.open.begin()
    over.open.close()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(waiting.ask)
        assert waiting.open._gateway._server.wait_for_requests(1)
        _kill(waiting)
        for run in (waiting, idle):
            halt = run.hears(Halt)
            assert halt.kind == "gone"
            assert "has ended: SystemExit: killed" in halt.message
            assert halt.hint
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.result(20)
    assert [told for told in over.told if isinstance(told, Halt)] == []
    assert not _is_listening(waiting.open.url)
    # The next run does not find a dead one.
    after = Run("anew")
    after.open.begin()
    assert "anew" in after.ask()[1]
    waiting.open.close()
    idle.open.close()
    assert "anew" in after.ask()[1]
    after.open.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_has_a_gateway_of_its_own() -> None:
    """The parent's threads are not in it; and what it closes is not closed for the parent."""
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


def test_fifty_runs_at_once() -> None:
    """Each has its own answers, and is told of its own requests alone."""
    runs = [Run(f"answer {number:02}") for number in range(50)]
    runs[0].open.begin()
    try:
        with ThreadPoolExecutor(50) as pool:
            answers = [pool.submit(run.ask) for run in runs for _ in range(4)]
            texts = [answer.result(30)[1] for answer in answers]
        assert all(f"answer {number // 4:02}" in text for number, text in enumerate(texts))
        for run in runs:
            run.hears(Answered)
            assert sorted(told.number for told in run.told if isinstance(told, Answered)) == [1, 2, 3, 4]
    finally:
        for run in runs:
            run.open.close()


def test_a_strangers_body_is_not_read() -> None:
    """Without a live token a megabyte is refused after its first part; with one it passes."""
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
