"""Stops on the warm lane: a turn ends with all that it has started, and its neighbours notice nothing."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids.gateway.request import Request
from geminids.gateway.script.script import Reply, make_reply
from geminids.gateway.script.scripted import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]

# A shell that ignores TERM, with a child in a session of its own; both write down who they are.
STUBBORN = (
    "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {name}.child; exec sleep 300' & "
    "echo $$ > {name}.shell; sleep 300"
)
LEFT = "setsid sleep 300 >/dev/null 2>&1 & echo $! > {name}.left"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def act(request: Request) -> Reply | None:
    """`stubborn NAME`, `left NAME`: a shell; `slow`: an answer that never ends; else an echo of all that was said."""
    if request.method != "stream":
        return None
    last = request.contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return make_reply({"text": "done"})
    words = last[-1]["text"].split()
    shells = {"stubborn": STUBBORN, "left": LEFT}
    if words[0] in shells:
        command = shells[words[0]].format(name=words[1])
        return make_reply({"calls": [("run_shell_command", {"command": command})]})
    if words[0] == "slow":
        return make_reply({"text": ["a ", "b "], "stall": True})
    return make_reply({"text": f"echo {words[-1]}"})


@pytest.fixture
def stage(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(act)
    return world


async def pid_in(file: Path) -> int:
    with anyio.fail_after(20):
        while not (file.exists() and file.read_text().strip()):
            await anyio.sleep(0.02)
    return int(file.read_text())


def is_answered(request: Request) -> bool:
    """Whether each call in the history has its result, as the API demands."""
    parts = [part for content in request.contents for part in content["parts"]]
    return sum("functionCall" in part for part in parts) == sum("functionResponse" in part for part in parts)


async def holds(condition: Callable[[], bool], within: float) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.02)
    return True


def gone(*pids: int) -> Callable[[], bool]:
    return lambda: (
        not any(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids
        )
    )


async def test_a_cancelled_tool_is_gone_and_nobody_else_noticed(stage: Any) -> None:
    """Cancel in a shell that ignores TERM: its tree is gone, the chat goes on, the other chats did not notice."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool, AsyncExitStack() as opened:
        chat, other, quiet = [await opened.enter_async_context(pool.chat()) for _ in range(3)]
        sending, others = chat.send("stubborn mine"), other.send("stubborn theirs")
        mine = [await pid_in(stage.cwd / f"mine.{what}") for what in ("shell", "child")]
        theirs = [await pid_in(stage.cwd / f"theirs.{what}") for what in ("shell", "child")]
        began = time.monotonic()
        sending.stop("enough")
        [event async for event in sending]
        assert time.monotonic() - began < stage.options().grace + 1
        assert sending.result.outcome == "interrupted" and sending.result.reason == "enough"
        assert await holds(gone(*mine), 1)
        assert not gone(*theirs)() and all(map(psutil.pid_exists, theirs))
        assert (await chat.ask("say again")).answer == "echo again"
        assert "stubborn mine" in repr(stage.gateway.requests[-1].contents), (
            "the model knows what was stopped"
        )
        assert all(map(is_answered, stage.gateway.requests))
        assert (await quiet.ask("say hello")).answer == "echo hello"
        assert not others.done.is_set() and len(pool.status()) == 1
        others.stop()
        await others.end()
        assert await holds(gone(*theirs), 1)


async def test_a_stopped_turn_is_not_forgotten(stage: Any) -> None:
    """The CLI takes back a turn that is stopped in its answer, prompt and all; the next prompt tells of it."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool, pool.chat() as chat:
        assert (await chat.ask("say first")).ok
        for number in range(2):
            sending = chat.send(f"slow {number}")
            async for event in sending:
                if isinstance(event, geminids.Text) and event.text == "b ":
                    sending.stop("enough")
            assert sending.result.outcome == "interrupted"
        result = await chat.ask("say next")
        assert result.answer == "echo next"
    said = repr(stage.gateway.requests[-1].contents)
    assert "echo first" in said and said.count("a b ") == 2
    assert all(said.count(words) == 1 for words in ("say first", "slow 0", "slow 1", "say next"))
    strays = list((stage.home / ".gemini" / "tmp" / "idle").rglob("session-*"))
    assert strays == [], "a process leaves no session of its own"


async def test_a_closed_chat_leaves_no_shell(stage: Any) -> None:
    """What a tool has left in the background lives with its chat, goes with it, and with no other."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool:
        async with pool.chat() as other:
            async with pool.chat() as chat:
                assert (await chat.ask("left mine")).ok
                mine = await pid_in(stage.cwd / "mine.left")
                assert (await other.ask("left theirs")).ok
                theirs = await pid_in(stage.cwd / "theirs.left")
                assert (await chat.ask("say again")).ok and psutil.pid_exists(mine)
            assert await holds(gone(mine), 3)
            assert psutil.pid_exists(theirs)
        assert await holds(gone(theirs), 3)
        async with pool.chat(leftovers="keep") as keeps:
            assert (await keeps.ask("left kept")).ok
        kept = await pid_in(stage.cwd / "kept.left")
        assert psutil.pid_exists(kept)
        (process,) = pool.status()
    assert await holds(gone(kept, process.pid), 1), "what is left ends with the pool"


async def test_time_out_and_silence_end_the_turn_alone(stage: Any) -> None:
    """`timeout` and `idle_timeout` end a turn, not the chat."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool, pool.chat() as chat:
        result = await chat.ask("slow", timeout=0.5)
        assert (result.outcome, result.text) == ("timed_out", "a b ")
        result = await chat.ask("slow", idle_timeout=0.5)
        assert result.outcome == "timed_out" and "no output" in (result.reason or "")
        assert (await chat.ask("say again")).answer == "echo again"


async def test_kill_nine_in_the_middle_of_ten_turns(stage: Any) -> None:
    """Ten turns end as crashed, each once; the next turns work, and the conversations go on with nothing lost."""
    async with geminids.Pool(stage.options(approval="yolo")) as pool, AsyncExitStack() as opened:
        chats = [await opened.enter_async_context(pool.chat()) for _ in range(10)]
        for number, chat in enumerate(chats):
            assert (await chat.ask(f"remember word{number}")).ok
        sendings = [chat.send("slow") for chat in chats]
        for sending in sendings:
            async for event in sending:
                if isinstance(event, geminids.Text):
                    break
        (process,) = pool.status()
        os.kill(process.pid, signal.SIGKILL)
        for sending in sendings:
            rest = [event async for event in sending]
            assert [isinstance(event, geminids.Finished) for event in rest].count(True) == 1
            failure = sending.result.failure
            assert failure is not None and failure.kind == "crashed" and failure.retryable
        for number, chat in enumerate(chats):
            result = await chat.ask(f"say next{number}")
            assert result.ok and result.answer == f"echo next{number}"
        assert [one.pid for one in pool.status()] != [process.pid]
    last = [request for request in stage.gateway.requests if request.method == "stream"][-10:]
    for request in last:
        said = repr(request.contents)
        (number,) = set(re.findall(r"say next(\d)", said))
        assert f"remember word{number}" in said and f"echo word{number}" in said


@pytest.mark.parametrize("how", ["block", "task", "pool"])
async def test_whoever_leaves_ends_everything(stage: Any, how: str) -> None:
    """A chat's block left in a turn, a task that is cancelled, a pool that is left: no tool is left behind."""
    pids: list[int] = []

    async def work(scope: anyio.CancelScope) -> None:
        with scope:
            async with geminids.Pool(stage.options(approval="yolo")) as pool, pool.chat() as chat:
                chat.send("stubborn mine")
                pids.extend([await pid_in(stage.cwd / f"mine.{what}") for what in ("shell", "child")])
                pids.extend(one.pid for one in pool.status())
                if how == "task":
                    scope.cancel()
                    await chat.ask("never said")
                elif how == "pool":
                    raise KeyError("left")

    scope = anyio.CancelScope()
    if how == "pool":
        with pytest.raises(KeyError):
            await work(scope)
    else:
        await work(scope)
    assert await holds(gone(*pids), 1)


async def test_asyncios_own_cancel_ends_everything_too(stage: Any) -> None:
    """`task.cancel()` knows no shield: twice in a row, it still leaves nothing behind, and the task is cancelled."""
    pids: list[int] = []

    async def work() -> None:
        async with geminids.Pool(stage.options(approval="yolo")) as pool, pool.chat() as chat:
            pids.extend(one.pid for one in pool.status())
            await chat.ask("stubborn mine")

    task = asyncio.create_task(work())
    pids.extend([await pid_in(stage.cwd / f"mine.{what}") for what in ("shell", "child")])
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) == 3 and await holds(gone(*pids), 1)


async def test_a_process_that_hangs_under_a_turn_is_not_sat_in_again(stage: Any) -> None:
    """The turn ends by its time-out, and the next one finds a process that answers."""
    async with geminids.Pool(stage.options(grace=0.5), size=1) as pool, pool.chat() as chat:
        (before,) = pool.status()
        os.kill(before.pid, signal.SIGSTOP)
        assert (await chat.ask("hello", timeout=0.5)).outcome == "timed_out"
        result = await chat.ask("again", timeout=15)
        assert (result.outcome, result.text) == ("success", "echo again")
        assert [one.pid for one in pool.status()] != [before.pid]
