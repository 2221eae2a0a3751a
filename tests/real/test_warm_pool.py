"""The pool: bounded, shared where it can be, replaced where it must be, and nothing left of it."""

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
from geminids.gateway.script.script import Reply, make_reply
from geminids.gateway.script.scripted import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]

# A daemon that nobody waits for and that is nobody's child, and a tool that outlasts its birth.
DAEMON = (
    "touch {name}.in; until test -f {other}.in; do sleep 0.02; done; "
    "(setsid sh -c 'echo $$ > {name}.pid; exec sleep 300' >/dev/null 2>&1 &) ; "
    "until test -s {name}.pid; do sleep 0.02; done; sleep 0.5"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def act(request: Request) -> Reply | None:
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
def stage(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(act)
    return world


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def holds(condition: Callable[[], bool], within: float) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.02)
    return True


async def test_chats_share_a_process_where_they_can(stage: Any) -> None:
    """Another folder and another model share; other variables, permissions and releases do not."""
    other = stage.root / "other"
    other.mkdir()
    async with geminids.Pool(stage.options(), size=3) as pool, AsyncExitStack() as opened:
        one = await opened.enter_async_context(pool.chat())
        two = await opened.enter_async_context(pool.chat(cwd=str(other), model="pro"))
        assert (await one.ask("say a")).ok and (await two.ask("say b")).ok
        assert [status.chats for status in pool.status()] == [2]
        env = {**stage.options().env, "COLOUR": "blue"}
        async with pool.chat(env=env) as three:
            assert (await three.ask("say c")).ok
            assert sorted(status.chats for status in pool.status()) == [1, 2]
    models = {request.model for request in stage.gateway.requests if request.method == "stream"}
    assert len(models) == 2


async def test_who_comes_when_all_is_taken_waits(stage: Any) -> None:
    """At most `size` processes with `chats` chats: the next one waits for a place, and gets it."""
    order: list[str] = []

    async def wait(pool: geminids.Pool) -> None:
        async with pool.chat() as chat:
            order.append("in")
            assert (await chat.ask("say hello")).ok

    async with geminids.Pool(stage.options(), size=1, chats=1) as pool:
        async with anyio.create_task_group() as tasks, pool.chat() as chat:
            tasks.start_soon(wait, pool)
            assert (await chat.ask("say a")).ok and (await chat.ask("say b")).ok
            order.append("out")
        assert order == ["out", "in"]
        assert [status.sessions for status in pool.status()] == [2]


async def test_whoever_waits_for_a_place_can_be_stopped(stage: Any) -> None:
    """A turn that waits for a place ends when it is stopped, when its time is over, and when the pool is left."""
    async with geminids.Pool(stage.options(), size=1, chats=1) as pool, pool.chat() as chat:
        assert (await chat.ask("say a")).ok
        waiting = pool.chat()
        waiting._open = True  # as in its block, which would wait for the place itself
        result = await waiting.ask("say b", timeout=0.3)
        assert (result.outcome, result.exit_code) == ("timed_out", None) and "waiting" in (
            result.reason or ""
        )
        sending = waiting.send("say c")
        await anyio.sleep(0.1)
        sending.stop("enough")
        with anyio.fail_after(2):
            await sending.done.wait()
        assert (sending.result.outcome, sending.result.reason) == ("interrupted", "enough")
        last = waiting.send("say d")
        await anyio.sleep(0.1)
    assert last.result.outcome == "interrupted"


async def test_a_process_is_retired_and_replaced(stage: Any) -> None:
    """After so many sessions no new chat begins in a process; it is ended with its last one."""
    async with geminids.Pool(stage.options(), sessions=2, size=2) as pool:
        pids = set()
        for _ in range(3):
            async with pool.chat() as chat:
                assert (await chat.ask("say a")).ok
                pids |= {status.pid for status in pool.status()}
        assert len(pids) == 2
        assert await holds(lambda: len(pool.status()) == 1, 5)


async def test_a_process_that_has_grown_too_much_is_given_up(stage: Any) -> None:
    """With twice the memory that it may have, a process is ended between turns; its chats go on elsewhere."""
    async with geminids.Pool(stage.options(), memory=1024 * 1024) as pool, pool.chat() as chat:
        for number in range(10):
            assert (await chat.ask(f"say {number}")).ok
        before = chat.session_id
        assert await holds(lambda: not pool.status(), 5)
        sending = chat.send("say more")
        events = [event async for event in sending]
        assert sending.result.ok and chat.session_id != before
        assert [one.code for one in events if isinstance(one, geminids.Notice)] == ["lane"]
    said = repr(stage.gateway.requests[-1].contents)
    assert all(f"echo {number}" in said for number in range(10))


@pytest.mark.deep
async def test_an_idle_process_is_ended(stage: Any) -> None:
    """Without chats a process goes after `idle` seconds; with one it stays."""
    async with geminids.Pool(stage.options(), idle=0.4) as pool:
        async with pool.chat() as chat:
            await anyio.sleep(0.8)
            assert (await chat.ask("say a")).ok and len(pool.status()) == 1
        assert await holds(lambda: not pool.status(), 5)
        async with pool.chat() as chat:
            assert (await chat.ask("say b")).ok


@pytest.mark.deep
async def test_a_process_that_does_not_answer_is_replaced(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that hangs is found out before the next turn, and the conversation goes on elsewhere."""
    monkeypatch.setattr("geminids.warm.pool._PING_AFTER", 0.0)
    async with geminids.Pool(stage.options(grace=0.5)) as pool, pool.chat() as chat:
        assert (await chat.ask("say a")).ok
        (before,) = pool.status()
        os.kill(before.pid, signal.SIGSTOP)
        result = await chat.ask("say b")
        assert result.ok and result.answer == "echo b"
        assert await holds(lambda: [one.pid for one in pool.status()] != [before.pid], 3)


async def test_a_daemon_that_is_nobodys_ends_with_its_process_and_is_told(stage: Any) -> None:
    """Two chats that run shells at the same time: whose a daemon is, nobody can say; it ends when the process does."""
    told: list[str] = []

    def pid(name: str) -> int:
        return int((stage.cwd / f"{name}.pid").read_text())

    options = stage.options(approval="yolo")
    async with geminids.Pool(options, on_notice=lambda notice: told.append(notice.message)) as pool:
        async with pool.chat() as one, pool.chat() as two, anyio.create_task_group() as tasks:
            tasks.start_soon(one.ask, "daemon one two")
            tasks.start_soon(two.ask, "daemon two one")
        assert psutil.pid_exists(pid("one")) and psutil.pid_exists(pid("two"))
        assert [status.retiring for status in pool.status()] in ([], [True]), "it is not kept for others"
        assert await holds(lambda: is_gone(pid("one")) and is_gone(pid("two")), 5)
    assert len(told) == 1 and str(pid("one")) in told[0] and str(pid("two")) in told[0]


@pytest.mark.deep
async def test_a_daemon_of_one_chat_ends_with_it(stage: Any) -> None:
    """A daemon that was born while one chat alone ran a shell is that chat's, though it is nobody's child."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool, pool.chat() as other:
        async with pool.chat() as chat:
            assert (await chat.ask("daemon mine mine")).ok
            pid = int((stage.cwd / "mine.pid").read_text())
            assert psutil.pid_exists(pid)
        assert await holds(lambda: is_gone(pid), 1)
        assert (await other.ask("say a")).ok and len(pool.status()) == 1


@pytest.mark.deep
@pytest.mark.timeout(400)
async def test_five_hundred_chats_leave_nothing(stage: Any) -> None:
    """500 chats opened and closed: memory, threads, descriptors and processes of the host are back where they were."""
    me = psutil.Process()

    def look() -> tuple[int, int, int]:
        # anyio's own workers come and go with its idle time (10 s), whatever we do: counted apart
        return me.num_fds(), len(threading.enumerate()) - workers(), len(me.children(recursive=True))

    def workers() -> int:
        return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())

    async with geminids.Pool(stage.options(), size=1, sessions=100) as pool:
        for _ in range(20):
            async with pool.chat() as chat:
                await chat.ask("say a")
        gc.collect()
        before, memory = look(), me.memory_info().rss
        for number in range(500):
            async with pool.chat() as chat:
                if number % 10 == 0:
                    assert (await chat.ask("say a")).ok
        assert await holds(lambda: len(pool.status()) == 1, 10)
        gc.collect()
        assert look() == before and workers() < 5
        assert me.memory_info().rss - memory < 30 * 1024 * 1024
        (process,) = pool.status()
        assert process.memory < 600 * 1024 * 1024
    assert me.num_fds() <= before[0] and len(me.children(recursive=True)) <= before[2]
