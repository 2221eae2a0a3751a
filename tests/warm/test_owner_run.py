"""A run that an owner serves, seen from its client; the owner here is a stand-in that says what each test needs."""

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
from geminids.warm.owner.owner_place import OwnerPlace
from geminids.warm.owner.owner_reach import our_hello
from geminids.warm.owner.owner_run import RemoteRun
from geminids.warm.owner.owner_wire import Answer, Asked, Cold, Order, Stop, as_line, asked_in
from geminids.warm.permissions.decide import Said

Serve = Callable[["Talk"], None]


class Talk:
    """The owner's end of a connection, after the greetings."""

    def __init__(self, sock: socket.socket) -> None:
        self._file = sock.makefile("rb")
        self._sock = sock
        sock.sendall(as_line(our_hello()))
        self._file.readline()

    def hear(self) -> Asked | None:
        line = self._file.readline()
        return asked_in(line)[0] if line else None

    def say(self, *told: Any) -> None:
        self._sock.sendall(b"".join(map(as_line, told)))

    def close(self) -> None:
        self._file.close()
        self._sock.close()


@pytest.fixture
def owner(stand_in: Any, tmp_path: Path) -> Iterator[Callable[[Serve], Options]]:
    """Let a function serve one run; gives options for it, with a stand-in CLI that answers `headless`."""
    threads: list[threading.Thread] = []
    place = OwnerPlace(Places(tmp_path / "geminids"))

    def start(serve: Serve) -> Options:
        place.check()
        listener = place.listen()
        listener.setblocking(True)

        def run() -> None:
            with listener:
                sock, _ = listener.accept()
            talk = Talk(sock)
            try:
                serve(talk)
            finally:
                talk.close()

        threads.append(threading.Thread(target=run))
        threads[0].start()
        made: Options = stand_in("out(INIT + say('headless') + DONE)")
        return made

    yield start
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    place.socket.unlink(missing_ok=True)


def _event(kind: type[Any], seq: int, /, **fields: Any) -> Any:
    return kind(at=0, seq=seq, attempt=1, turn=1, **fields)


def _started() -> Started:
    made: Started = _event(
        Started,
        0,
        run_id="run-1",
        session_id="s-1",
        model=None,
        cwd="/",
        cli_version=None,
        lane="warm",
        pid=1,
    )
    return made


def _finished(seq: int, text: str) -> Finished:
    made: Finished = _event(
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
    return made


async def _events(run: RemoteRun) -> list[Any]:
    async with run:
        return [event async for event in run]


@pytest.mark.anyio
async def test_a_run_is_told_to_its_end(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order has what the client knows; the events are the owner's."""
    monkeypatch.setenv("OF_THE_CLIENT", "yes")
    heard: list[Any] = []

    def serve(talk: Talk) -> None:
        heard.append(talk.hear())
        talk.say(_started(), _event(Text, 1, text="hi"), _finished(2, "hi"))

    run = RemoteRun("hello", owner(serve), keep=7)
    events = await _events(run)
    assert [type(event) for event in events] == [Started, Text, Finished]
    assert (run.result.answer, run.result.turns[0].text) == ("hi", "hi")
    (order,) = heard
    assert isinstance(order, Order)
    assert (order.prompt, order.keep, order.asks, order.environ["OF_THE_CLIENT"]) == (
        "hello",
        7,
        False,
        "yes",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("says", ["cold", "nothing", "rubbish"])
async def test_an_owner_that_does_not_begin_leaves_the_run_to_us(owner: Any, says: str) -> None:
    """It goes on headless, with one notice that says why."""

    def serve(talk: Talk) -> None:
        talk.hear()
        if says == "cold":
            talk.say(Cold(why="it is winter"))
        elif says == "rubbish":
            talk.say(our_hello())

    run = RemoteRun("hello", owner(serve), keep=1)
    events = await _events(run)
    assert [event.seq for event in events] == list(range(len(events)))
    notice = events[0]
    assert isinstance(notice, Notice)
    why = "it is winter" if says == "cold" else "the pool's owner ended before the run had begun"
    assert (notice.level, notice.code, notice.message) == ("warning", "lane", f"not a warm run: {why}")
    assert (run.result.outcome, run.result.answer) == ("success", "headless")


@pytest.mark.anyio
async def test_an_owner_that_goes_in_the_middle_is_a_crash(owner: Any) -> None:
    """What was sent to a model is not sent again."""

    def serve(talk: Talk) -> None:
        talk.hear()
        talk.say(_started(), _event(Text, 1, text="half"))

    run = RemoteRun("hello", owner(serve), keep=1)
    events = await _events(run)
    assert [type(event) for event in events] == [Started, Text, Finished]
    failure = run.result.failure
    assert failure is not None
    assert (failure.kind, run.result.text, run.result.session_id) == ("crashed", "half", "s-1")


@pytest.mark.anyio
@pytest.mark.parametrize("begun", [True, False])
async def test_leaving_the_block_ends_the_run(owner: Any, begun: bool) -> None:
    """The owner is told, and its end waited for; one that has not begun is not begun elsewhere."""
    heard: list[Any] = []

    def serve(talk: Talk) -> None:
        talk.hear()
        if begun:
            talk.say(_started())
        heard.append(talk.hear())

    run = RemoteRun("hello", owner(serve), keep=1)
    async with run:
        if begun:
            assert await run.next_batch()
    assert heard == [Stop(reason="interrupted by the caller")]
    assert (run.result.outcome, run.result.reason) == ("interrupted", "interrupted by the caller")


@pytest.mark.anyio
async def test_the_whole_time_is_the_clients(owner: Any) -> None:
    """`timeout` counts from the start, whatever the owner does meanwhile."""
    heard: list[Any] = []

    def serve(talk: Talk) -> None:
        talk.hear()
        heard.append(talk.hear())

    options = owner(serve)
    began = time.monotonic()
    run = RemoteRun("hello", Options(cwd=options.cwd, gemini=options.gemini, timeout=0.3), keep=1)
    await _events(run)
    assert 0.25 < time.monotonic() - began < 3
    assert heard == [Stop(reason="timed out after 0.3 s", by_deadline=True)]
    assert (run.result.outcome, run.result.reason) == ("timed_out", "timed out after 0.3 s")


@pytest.mark.anyio
async def test_an_owner_that_does_not_stop_is_left(owner: Any) -> None:
    """Asked twice and still silent: the client goes, and hangs up."""
    over = threading.Event()

    def serve(talk: Talk) -> None:
        while talk.hear() is not None:
            pass
        over.set()

    run = RemoteRun("hello", owner(serve), keep=1)
    async with run:
        run.stop("enough")
        run.stop("enough, I said")
        began = time.monotonic()
        events = [event async for event in run]
    assert time.monotonic() - began < 6
    assert [event.reason for event in events if isinstance(event, Finished)] == ["enough"]
    assert await anyio.to_thread.run_sync(over.wait, 5)


@pytest.mark.anyio
@pytest.mark.parametrize("answer", ["allow", Said("deny", "person", "not today"), "perhaps", ValueError("x")])
async def test_who_is_asked_answers(owner: Any, answer: Any) -> None:
    """The answer goes to the owner; one that is none is a no."""
    heard: list[Any] = []
    asked = _event(PermissionAsked, 1, id="t", tool="run_shell_command", kind="execute", title="rm x")

    def serve(talk: Talk) -> None:
        order = talk.hear()
        assert isinstance(order, Order)
        assert order.asks
        talk.say(_started(), asked)
        heard.append(talk.hear())
        talk.say(_finished(2, ""))

    async def decide(given: PermissionAsked) -> Any:
        assert given == asked
        if isinstance(answer, Exception):
            raise answer
        return answer

    await _events(RemoteRun("hello", owner(serve), keep=1, on_permission=decide))
    (said,) = heard
    assert isinstance(said, Answer)
    expected = {"allow": "allow"}.get(str(answer), "deny")
    assert (said.id, said.decision) == ("t", expected)
    if isinstance(answer, Said):
        assert (said.by, said.reason) == ("person", "not today")


@pytest.mark.anyio
async def test_a_question_that_is_decided_is_withdrawn(owner: Any) -> None:
    """The time is over: whoever still thinks about it is let go."""
    asked = _event(PermissionAsked, 1, id="t", tool="x", kind="other", title="x")
    decided = _event(PermissionDecided, 2, id="t", tool="x", decision="deny", by="timeout")
    thinking, withdrawn = threading.Event(), anyio.Event()

    def serve(talk: Talk) -> None:
        talk.hear()
        talk.say(_started(), asked)
        assert thinking.wait(10)
        talk.say(decided)
        talk.say(_finished(3, ""))

    async def decide(_: PermissionAsked) -> Said:
        thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return Said("allow")

    events = await _events(RemoteRun("hello", owner(serve), keep=1, on_permission=decide))
    assert withdrawn.is_set()
    assert isinstance(events[-1], Finished)
