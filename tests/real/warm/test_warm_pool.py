"""The pool limits, shares and replaces its processes, and leaves no process behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids.gateway.request import Request
from geminids.gateway.script.replies import Reply, make_reply
from geminids.gateway.script.scripted_upstream import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]

# Start a detached daemon after the other chat's tool has started too. The tool ends after its
# daemon has started.
DAEMON = (
    "touch {name}.in; until test -f {other}.in; do sleep 0.02; done; "
    "(setsid sh -c 'echo $$ > {name}.pid; exec sleep 300' >/dev/null 2>&1 &) ; "
    "until test -s {name}.pid; do sleep 0.02; done; sleep 0.5"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reply_to_prompt(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    last = request.contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return make_reply({"text": "done"})
    words = last[-1]["text"].split()
    if words[0] == "daemon":
        return make_reply(
            {"calls": [("run_shell_command", {"command": DAEMON.format(name=words[1], other=words[-1])})]}
        )
    return make_reply({"text": f"echo {words[-1]}"})


@pytest.fixture
def scripted_world(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(reply_to_prompt)
    return world


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def becomes_true(condition: Callable[[], bool], within: float) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.02)
    return True


async def test_chats_share_a_process_where_they_can(scripted_world: Any) -> None:
    """Chats with different folders and models share a process. A chat with other environment
    variables gets its own process."""
    other = scripted_world.root / "other"
    other.mkdir()
    async with geminids.Pool(scripted_world.options(), size=3) as pool, AsyncExitStack() as opened:
        first = await opened.enter_async_context(pool.chat())
        second = await opened.enter_async_context(pool.chat(cwd=str(other), model="pro"))
        assert (await first.ask("say a")).ok and (await second.ask("say b")).ok
        assert [status.chats for status in pool.status()] == [2]
        env = {**scripted_world.options().env, "COLOUR": "blue"}
        async with pool.chat(env=env) as third:
            assert (await third.ask("say c")).ok
            assert sorted(status.chats for status in pool.status()) == [1, 2]
    models = {request.model for request in scripted_world.gateway.requests if request.method == "stream"}
    assert len(models) == 2


async def test_a_chat_waits_for_a_free_process(scripted_world: Any) -> None:
    """A chat waits while all `size` processes have their maximum of `chats`. It starts when another
    chat ends."""
    order: list[str] = []

    async def wait(pool: geminids.Pool) -> None:
        async with pool.chat() as chat:
            order.append("in")
            assert (await chat.ask("say hello")).ok

    async with geminids.Pool(scripted_world.options(), size=1, chats=1) as pool:
        async with anyio.create_task_group() as tasks, pool.chat() as chat:
            tasks.start_soon(wait, pool)
            assert (await chat.ask("say a")).ok and (await chat.ask("say b")).ok
            order.append("out")
        assert order == ["out", "in"]
        assert [status.sessions for status in pool.status()] == [2]


async def test_a_waiting_turn_can_be_stopped(scripted_world: Any) -> None:
    """A turn that waits for a free process ends when it times out, when it is stopped and when the
    pool closes."""
    async with geminids.Pool(scripted_world.options(), size=1, chats=1) as pool, pool.chat() as chat:
        assert (await chat.ask("say a")).ok
        waiting = pool.chat()
        waiting._open = True  # `async with` would already wait for a free process
        result = await waiting.ask("say b", timeout=0.3)
        assert (result.outcome, result.exit_code) == ("timed_out", None) and "waiting" in (
            result.reason or ""
        )
        turn = waiting.send("say c")
        await anyio.sleep(0.1)
        turn.stop("enough")
        with anyio.fail_after(2):
            await turn.done.wait()
        assert (turn.result.outcome, turn.result.reason) == ("interrupted", "enough")
        last = waiting.send("say d")
        await anyio.sleep(0.1)
    assert last.result.outcome == "interrupted"


async def test_a_process_is_retired_and_replaced(scripted_world: Any) -> None:
    """A process that has reached its maximum of `sessions` gets no new chat and ends after its last
    one."""
    async with geminids.Pool(scripted_world.options(), sessions=2, size=2) as pool:
        pids = set()
        for _ in range(3):
            async with pool.chat() as chat:
                assert (await chat.ask("say a")).ok
                pids |= {status.pid for status in pool.status()}
        assert len(pids) == 2
        assert await becomes_true(lambda: len(pool.status()) == 1, 5)


async def test_a_process_over_its_memory_limit_is_replaced(scripted_world: Any) -> None:
    """A process over its memory limit is ended between turns. Its chat continues in a new process
    with the whole conversation."""
    async with geminids.Pool(scripted_world.options(), memory=1024 * 1024) as pool, pool.chat() as chat:
        for number in range(10):
            assert (await chat.ask(f"say {number}")).ok
        before = chat.session_id
        assert await becomes_true(lambda: not pool.status(), 5)
        turn = chat.send("say more")
        events = [event async for event in turn]
        assert turn.result.ok and chat.session_id != before
        notices = [event for event in events if isinstance(event, geminids.Notice) and event.level != "debug"]
        assert [notice.code for notice in notices] == ["transport"]
    sent = repr(scripted_world.gateway.requests[-1].contents)
    assert all(f"echo {number}" in sent for number in range(10))


@pytest.mark.deep
async def test_an_idle_process_is_ended(scripted_world: Any) -> None:
    """A process without chats ends after `idle` seconds. A process with an open chat stays."""
    async with geminids.Pool(scripted_world.options(), idle=0.4) as pool:
        async with pool.chat() as chat:
            await anyio.sleep(0.8)
            assert (await chat.ask("say a")).ok and len(pool.status()) == 1
        assert await becomes_true(lambda: not pool.status(), 5)
        async with pool.chat() as chat:
            assert (await chat.ask("say b")).ok


@pytest.mark.deep
async def test_a_process_that_does_not_answer_is_replaced(
    scripted_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a turn, the pool detects that the chat's process hangs. The turn runs in another
    process."""
    monkeypatch.setattr("geminids.warm.pool._PING_AFTER", 0.0)
    async with geminids.Pool(scripted_world.options(grace=0.5)) as pool, pool.chat() as chat:
        assert (await chat.ask("say a")).ok
        (before,) = pool.status()
        os.kill(before.pid, signal.SIGSTOP)
        result = await chat.ask("say b")
        assert result.ok and result.answer == "echo b"
        assert await becomes_true(lambda: [one.pid for one in pool.status()] != [before.pid], 3)


async def test_a_daemon_of_no_known_chat_ends_with_its_process_and_is_reported(scripted_world: Any) -> None:
    """If two chats could have started a daemon, it ends with their process, not with a chat. One
    notice reports it."""
    messages: list[str] = []

    def pid(name: str) -> int:
        return int((scripted_world.cwd / f"{name}.pid").read_text())

    options = scripted_world.options(approval="yolo")
    async with geminids.Pool(options, on_notice=lambda notice: messages.append(notice.message)) as pool:
        async with pool.chat() as first, pool.chat() as second, anyio.create_task_group() as tasks:
            tasks.start_soon(first.ask, "daemon one two")
            tasks.start_soon(second.ask, "daemon two one")
        assert psutil.pid_exists(pid("one")) and psutil.pid_exists(pid("two"))
        retiring = [status.retiring for status in pool.status()]
        assert retiring in ([], [True]), "the process gets no new chat"
        assert await becomes_true(lambda: is_gone(pid("one")) and is_gone(pid("two")), 5)
    assert len(messages) == 1 and str(pid("one")) in messages[0] and str(pid("two")) in messages[0]


@pytest.mark.deep
async def test_a_daemon_of_one_chat_ends_with_it(scripted_world: Any) -> None:
    """A daemon that started while only one chat ran a shell ends with that chat."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, pool.chat() as other:
        async with pool.chat() as chat:
            assert (await chat.ask("daemon mine mine")).ok
            pid = int((scripted_world.cwd / "mine.pid").read_text())
            assert psutil.pid_exists(pid)
        assert await becomes_true(lambda: is_gone(pid), 1)
        assert (await other.ask("say a")).ok and len(pool.status()) == 1


@pytest.mark.deep
@pytest.mark.timeout(400)
async def test_five_hundred_chats_leave_nothing(scripted_world: Any) -> None:
    """After 500 chats were opened and closed, the host has as many threads, file descriptors and
    processes as before, and at most 30 MB more memory."""
    me = psutil.Process()

    def count_resources() -> tuple[int, int, int]:
        # anyio ends its worker threads after 10 idle seconds, so they are counted separately.
        return me.num_fds(), len(threading.enumerate()) - count_workers(), len(me.children(recursive=True))

    def count_workers() -> int:
        return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())

    async with geminids.Pool(scripted_world.options(), size=1, sessions=100) as pool:
        for _ in range(20):
            async with pool.chat() as chat:
                await chat.ask("say a")
        gc.collect()
        before, memory = count_resources(), me.memory_info().rss
        for number in range(500):
            async with pool.chat() as chat:
                if number % 10 == 0:
                    assert (await chat.ask("say a")).ok
        assert await becomes_true(lambda: len(pool.status()) == 1, 10)
        gc.collect()
        assert count_resources() == before and count_workers() < 5
        assert me.memory_info().rss - memory < 30 * 1024 * 1024
        (process,) = pool.status()
        assert process.memory < 600 * 1024 * 1024
    assert me.num_fds() <= before[0] and len(me.children(recursive=True)) <= before[2]
