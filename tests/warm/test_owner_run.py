"""Tests of `RemoteRun`, a run that the pool's owner serves.

A thread plays the owner, as each test needs.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from geminids import Finished, Notice, Options, Started
from geminids.config.paths import Places
from geminids.events.model import PermissionAsked, PermissionDecided, Text
from geminids.warm.owner.place import OwnerPlace
from geminids.warm.owner.protocol import (
    AnswerMessage,
    ClientMessage,
    NotServed,
    Order,
    Stop,
    as_line,
    decode_client_messages,
)
from geminids.warm.owner.reach import our_hello
from geminids.warm.owner.run import RemoteRun
from geminids.warm.permissions.answer import PermissionAnswer

Serve = Callable[["OwnerConnection"], None]


class OwnerConnection:
    """The owner's end of a connection: exchanges the greetings, then sends and receives
    messages."""

    def __init__(self, sock: socket.socket) -> None:
        self._file = sock.makefile("rb")
        self._sock = sock
        sock.sendall(as_line(our_hello()))
        self._file.readline()

    def receive(self) -> ClientMessage | None:
        line = self._file.readline()
        return decode_client_messages(line)[0] if line else None

    def send(self, *messages: Any) -> None:
        self._sock.sendall(b"".join(map(as_line, messages)))

    def close(self) -> None:
        self._file.close()
        self._sock.close()


@pytest.fixture
def owner(fake_cli: Any, tmp_path: Path) -> Iterator[Callable[[Serve], Options]]:
    """Start a thread that serves one run with `serve`.

    Returns options with a fake CLI that answers `headless`, for runs that the owner does not start.
    """
    threads: list[threading.Thread] = []
    place = OwnerPlace(Places(tmp_path / "geminids"))

    def start(serve: Serve) -> Options:
        place.check()
        listener = place.listen()
        listener.setblocking(True)

        def run() -> None:
            with listener:
                sock, _ = listener.accept()
            connection = OwnerConnection(sock)
            try:
                serve(connection)
            finally:
                connection.close()

        threads.append(threading.Thread(target=run))
        threads[0].start()
        options: Options = fake_cli("out(INIT + say('headless') + DONE)")
        return options

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    place.socket.unlink(missing_ok=True)


def _event(kind: type[Any], seq: int, /, **fields: Any) -> Any:
    return kind(at=0, seq=seq, attempt=1, turn=1, **fields)


def _started() -> Started:
    started: Started = _event(
        Started,
        0,
        run_id="run-1",
        session_id="s-1",
        model=None,
        cwd="/",
        cli_version=None,
        transport="warm",
        pid=1,
    )
    return started


def _finished(seq: int, text: str) -> Finished:
    finished: Finished = _event(
        Finished,
        seq,
        run_id="run-1",
        outcome="success",
        failure=None,
        reason=None,
        text=text,
        answer=text,
        session_id="s-1",
        clear_session=False,
        usage=None,
        attempts=1,
        exit_code=None,
        duration_ms=1,
        ended=(),
        complete=True,
    )
    return finished


async def collect_events(run: RemoteRun) -> list[Any]:
    async with run:
        return [event async for event in run]


@pytest.mark.anyio
async def test_a_run_returns_the_owners_events(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner receives the client's prompt and environment; the client returns the owner's events
    unchanged."""
    monkeypatch.setenv("OF_THE_CLIENT", "yes")
    received: list[Any] = []

    def serve(connection: OwnerConnection) -> None:
        received.append(connection.receive())
        connection.send(_started(), _event(Text, 1, text="hi"), _finished(2, "hi"))

    run = RemoteRun("hello", owner(serve), keep=7)
    events = await collect_events(run)
    assert [type(event) for event in events] == [Started, Text, Finished]
    assert (run.result.answer, run.result.turns[0].text) == ("hi", "hi")
    (order,) = received
    assert isinstance(order, Order)
    assert (order.prompt, order.keep, order.asks, order.environ["OF_THE_CLIENT"]) == (
        "hello",
        7,
        False,
        "yes",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("reply", ["cold", "nothing", "rubbish"])
async def test_a_run_that_the_owner_does_not_start_is_headless(owner: Any, reply: str) -> None:
    """If the owner does not start the run, it continues headless, and one notice gives the
    reason."""

    def serve(connection: OwnerConnection) -> None:
        connection.receive()
        if reply == "cold":
            connection.send(NotServed(why="it is winter"))
        elif reply == "rubbish":
            connection.send(our_hello())

    run = RemoteRun("hello", owner(serve), keep=1)
    events = await collect_events(run)
    assert [event.seq for event in events] == list(range(len(events)))
    notice = events[0]
    assert isinstance(notice, Notice)
    reason = (
        "it is winter"
        if reply == "cold"
        else "the background process for warm runs ended before the run had begun"
    )
    assert (notice.level, notice.code, notice.message) == (
        "warning",
        "transport",
        f"the run does not use a warm process: {reason}",
    )
    assert (run.result.outcome, run.result.answer) == ("success", "headless")


@pytest.mark.anyio
async def test_an_owner_that_disconnects_during_a_run_is_a_crash(owner: Any) -> None:
    """If the owner disconnects after the start, the run fails as `crashed` and is not run again."""

    def serve(connection: OwnerConnection) -> None:
        connection.receive()
        connection.send(_started(), _event(Text, 1, text="half"))

    run = RemoteRun("hello", owner(serve), keep=1)
    events = await collect_events(run)
    assert [type(event) for event in events] == [Started, Text, Finished]
    failure = run.result.failure
    assert failure is not None
    assert (failure.kind, run.result.text, run.result.session_id) == ("crashed", "half", "s-1")


@pytest.mark.anyio
@pytest.mark.parametrize("is_started", [True, False])
async def test_leaving_the_block_ends_the_run(owner: Any, is_started: bool) -> None:
    """Leaving the `async with` block sends `Stop` to the owner.

    A run that has not started is not run headless instead.
    """
    received: list[Any] = []

    def serve(connection: OwnerConnection) -> None:
        connection.receive()
        if is_started:
            connection.send(_started())
        received.append(connection.receive())

    run = RemoteRun("hello", owner(serve), keep=1)
    async with run:
        if is_started:
            assert await run.next_batch()
    assert received == [Stop(reason="interrupted by the caller")]
    assert (run.result.outcome, run.result.reason) == ("interrupted", "interrupted by the caller")


@pytest.mark.anyio
async def test_the_client_enforces_the_timeout(owner: Any) -> None:
    """The client measures `timeout` itself, from the start of the run, and sends `Stop` to the
    owner."""
    received: list[Any] = []

    def serve(connection: OwnerConnection) -> None:
        connection.receive()
        received.append(connection.receive())

    options = owner(serve)
    start = time.monotonic()
    run = RemoteRun("hello", Options(cwd=options.cwd, gemini=options.gemini, timeout=0.3), keep=1)
    await collect_events(run)
    assert 0.25 < time.monotonic() - start < 3
    assert received == [Stop(reason="timed out after 0.3 s", by_deadline=True)]
    assert (run.result.outcome, run.result.reason) == ("timed_out", "timed out after 0.3 s")


@pytest.mark.anyio
async def test_an_owner_that_ignores_stop_is_abandoned(owner: Any) -> None:
    """If the owner does not react to two stop messages, the client ends the run and disconnects."""
    disconnected = threading.Event()

    def serve(connection: OwnerConnection) -> None:
        while connection.receive() is not None:
            pass
        disconnected.set()

    run = RemoteRun("hello", owner(serve), keep=1)
    async with run:
        run.stop("enough")
        run.stop("enough, again")
        start = time.monotonic()
        events = [event async for event in run]
    assert time.monotonic() - start < 6
    assert [event.reason for event in events if isinstance(event, Finished)] == ["enough"]
    assert await anyio.to_thread.run_sync(disconnected.wait, 5)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", ["allow", PermissionAnswer("deny", "person", "not today"), "perhaps", ValueError("x")]
)
async def test_the_callbacks_answer_is_sent_to_the_owner(owner: Any, answer: Any) -> None:
    """The client sends the callback's answer to the owner.

    An invalid answer or an exception becomes `deny`.
    """
    received: list[Any] = []
    asked = _event(PermissionAsked, 1, id="t", tool="run_shell_command", kind="execute", title="rm x")

    def serve(connection: OwnerConnection) -> None:
        order = connection.receive()
        assert isinstance(order, Order)
        assert order.asks
        connection.send(_started(), asked)
        received.append(connection.receive())
        connection.send(_finished(2, ""))

    async def decide(request: PermissionAsked) -> Any:
        assert request == asked
        if isinstance(answer, Exception):
            raise answer
        return answer

    await collect_events(RemoteRun("hello", owner(serve), keep=1, on_permission=decide))
    (message,) = received
    assert isinstance(message, AnswerMessage)
    expected = {"allow": "allow"}.get(str(answer), "deny")
    assert (message.id, message.decision) == ("t", expected)
    if isinstance(answer, PermissionAnswer):
        assert (message.by, message.reason) == ("person", "not today")


@pytest.mark.anyio
async def test_a_decided_request_cancels_the_callback(owner: Any) -> None:
    """When the owner reports a decision, the client cancels the callback that still waits."""
    asked = _event(PermissionAsked, 1, id="t", tool="x", kind="other", title="x")
    decided = _event(PermissionDecided, 2, id="t", tool="x", decision="deny", by="timeout")
    waiting, cancelled = threading.Event(), anyio.Event()

    def serve(connection: OwnerConnection) -> None:
        connection.receive()
        connection.send(_started(), asked)
        assert waiting.wait(10)
        connection.send(decided)
        connection.send(_finished(3, ""))

    async def decide(_: PermissionAsked) -> PermissionAnswer:
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return PermissionAnswer("allow")

    events = await collect_events(RemoteRun("hello", owner(serve), keep=1, on_permission=decide))
    assert cancelled.is_set()
    assert isinstance(events[-1], Finished)
