"""A turn on the warm transport that is stopped ends with all its processes. Other chats
continue."""

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
from geminids.gateway.script.replies import Reply, make_reply
from geminids.gateway.script.scripted_upstream import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]

# A shell that ignores SIGTERM, with a child in its own session. Both write their pid into a file.
STUBBORN = (
    "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {name}.child; exec sleep 300' & "
    "echo $$ > {name}.shell; sleep 300"
)
BACKGROUND = "setsid sleep 300 >/dev/null 2>&1 & echo $! > {name}.left"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reply_to_prompt(request: Request) -> Reply | None:
    """Reply to `stubborn NAME` and `left NAME` with a shell command, to `slow` with an answer that
    never ends, and to other prompts with an echo."""
    if request.method != "stream":
        return None
    last = request.contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return make_reply({"text": "done"})
    words = last[-1]["text"].split()
    shells = {"stubborn": STUBBORN, "left": BACKGROUND}
    if words[0] in shells:
        command = shells[words[0]].format(name=words[1])
        return make_reply({"calls": [("run_shell_command", {"command": command})]})
    if words[0] == "slow":
        return make_reply({"text": ["a ", "b "], "stall": True})
    return make_reply({"text": f"echo {words[-1]}"})


@pytest.fixture
def scripted_world(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(reply_to_prompt)
    return world


async def pid_in(file: Path) -> int:
    with anyio.fail_after(20):
        while not (file.exists() and file.read_text().strip()):
            await anyio.sleep(0.02)
    return int(file.read_text())


def has_all_results(request: Request) -> bool:
    """Return whether each tool call in the request has its result, as the API requires."""
    parts = [part for content in request.contents for part in content["parts"]]
    return sum("functionCall" in part for part in parts) == sum("functionResponse" in part for part in parts)


async def becomes_true(condition: Callable[[], bool], within: float) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.02)
    return True


def are_gone(*pids: int) -> Callable[[], bool]:
    return lambda: (
        not any(
            psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids
        )
    )


async def test_a_stopped_turn_ends_its_tools_only(scripted_world: Any) -> None:
    """A stopped turn ends its shell and the shell's child, although both ignore SIGTERM. Its chat
    continues, and the turns and processes of other chats are not affected."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, AsyncExitStack() as opened:
        chat, other, quiet = [await opened.enter_async_context(pool.chat()) for _ in range(3)]
        turn, other_turn = chat.send("stubborn mine"), other.send("stubborn theirs")
        mine = [await pid_in(scripted_world.cwd / f"mine.{role}") for role in ("shell", "child")]
        theirs = [await pid_in(scripted_world.cwd / f"theirs.{role}") for role in ("shell", "child")]
        began = time.monotonic()
        turn.stop("enough")
        [event async for event in turn]
        assert time.monotonic() - began < scripted_world.options().grace + 1
        assert turn.result.outcome == "interrupted" and turn.result.reason == "enough"
        assert await becomes_true(are_gone(*mine), 1)
        assert not are_gone(*theirs)() and all(map(psutil.pid_exists, theirs))
        assert (await chat.ask("say again")).answer == "echo again"
        assert "stubborn mine" in repr(scripted_world.gateway.requests[-1].contents), (
            "the next request has the stopped turn"
        )
        assert all(map(has_all_results, scripted_world.gateway.requests))
        assert (await quiet.ask("say hello")).answer == "echo hello"
        assert not other_turn.done.is_set() and len(pool.status()) == 1
        other_turn.stop()
        await other_turn.end()
        assert await becomes_true(are_gone(*theirs), 1)


async def test_a_stopped_turn_is_kept_in_the_conversation(scripted_world: Any) -> None:
    """If a turn is stopped during its answer, the CLI removes it from the conversation. geminids
    sends the prompt and the partial answer of that turn with the next prompt."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, pool.chat() as chat:
        assert (await chat.ask("say first")).ok
        for number in range(2):
            turn = chat.send(f"slow {number}")
            async for event in turn:
                if isinstance(event, geminids.Text) and event.text == "b ":
                    turn.stop("enough")
            assert turn.result.outcome == "interrupted"
        result = await chat.ask("say next")
        assert result.answer == "echo next"
    sent = repr(scripted_world.gateway.requests[-1].contents)
    assert "echo first" in sent and sent.count("a b ") == 2
    assert all(sent.count(words) == 1 for words in ("say first", "slow 0", "slow 1", "say next"))
    idle_sessions = list((scripted_world.home / ".gemini" / "tmp" / "idle").rglob("session-*"))
    assert idle_sessions == [], "a process writes no session file besides those of its chats"


async def test_a_closed_chat_leaves_no_shell(scripted_world: Any) -> None:
    """A background process of a tool lives until its own chat is closed. With `leftovers="keep"` it
    lives until the pool is closed."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool:
        async with pool.chat() as other:
            async with pool.chat() as chat:
                assert (await chat.ask("left mine")).ok
                mine = await pid_in(scripted_world.cwd / "mine.left")
                assert (await other.ask("left theirs")).ok
                theirs = await pid_in(scripted_world.cwd / "theirs.left")
                assert (await chat.ask("say again")).ok and psutil.pid_exists(mine)
            assert await becomes_true(are_gone(mine), 3)
            assert psutil.pid_exists(theirs)
        assert await becomes_true(are_gone(theirs), 3)
        async with pool.chat(leftovers="keep") as keeping_chat:
            assert (await keeping_chat.ask("left kept")).ok
        kept = await pid_in(scripted_world.cwd / "kept.left")
        assert psutil.pid_exists(kept)
        (process,) = pool.status()
    assert await becomes_true(are_gone(kept, process.pid), 1), "the pool's end ends kept processes"


async def test_time_out_and_silence_end_the_turn_alone(scripted_world: Any) -> None:
    """`timeout` and `idle_timeout` end only the turn: the chat's next turn works."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, pool.chat() as chat:
        result = await chat.ask("slow", timeout=0.5)
        assert (result.outcome, result.text) == ("timed_out", "a b ")
        result = await chat.ask("slow", idle_timeout=0.5)
        assert result.outcome == "timed_out" and "no output" in (result.reason or "")
        assert (await chat.ask("say again")).answer == "echo again"


async def test_a_killed_process_ends_ten_turns_as_crashed(scripted_world: Any) -> None:
    """If the process is killed during ten turns, each turn ends once as `crashed`. The next turns
    work, and each continues its conversation."""
    async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, AsyncExitStack() as opened:
        chats = [await opened.enter_async_context(pool.chat()) for _ in range(10)]
        for number, chat in enumerate(chats):
            assert (await chat.ask(f"remember word{number}")).ok
        turns = [chat.send("slow") for chat in chats]
        for turn in turns:
            async for event in turn:
                if isinstance(event, geminids.Text):
                    break
        (process,) = pool.status()
        os.kill(process.pid, signal.SIGKILL)
        for turn in turns:
            rest = [event async for event in turn]
            assert [isinstance(event, geminids.Finished) for event in rest].count(True) == 1
            failure = turn.result.failure
            assert failure is not None and failure.kind == "crashed" and failure.retryable
        for number, chat in enumerate(chats):
            result = await chat.ask(f"say next{number}")
            assert result.ok and result.answer == f"echo next{number}"
        assert [one.pid for one in pool.status()] != [process.pid]
    last = [request for request in scripted_world.gateway.requests if request.method == "stream"][-10:]
    for request in last:
        sent = repr(request.contents)
        (number,) = set(re.findall(r"say next(\d)", sent))
        assert f"remember word{number}" in sent and f"echo word{number}" in sent


@pytest.mark.parametrize("how", ["block", "task", "pool"])
async def test_leaving_ends_all_tools(scripted_world: Any, how: str) -> None:
    """Leaving the block of a chat and its pool ends all tools: after a normal end, after a
    cancelled scope and after an exception."""
    pids: list[int] = []

    async def work(scope: anyio.CancelScope) -> None:
        with scope:
            async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, pool.chat() as chat:
                chat.send("stubborn mine")
                pids.extend(
                    [await pid_in(scripted_world.cwd / f"mine.{role}") for role in ("shell", "child")]
                )
                pids.extend(one.pid for one in pool.status())
                if how == "task":
                    scope.cancel()
                    await chat.ask("never sent")
                elif how == "pool":
                    raise KeyError("left")

    scope = anyio.CancelScope()
    if how == "pool":
        with pytest.raises(KeyError):
            await work(scope)
    else:
        await work(scope)
    assert await becomes_true(are_gone(*pids), 1)


async def test_asyncio_cancel_ends_all_tools(scripted_world: Any) -> None:
    """Two calls of `task.cancel()` in a row, which pass every shield, still end all tools and
    cancel the task."""
    pids: list[int] = []

    async def work() -> None:
        async with geminids.Pool(scripted_world.options(approval="yolo")) as pool, pool.chat() as chat:
            pids.extend(one.pid for one in pool.status())
            await chat.ask("stubborn mine")

    task = asyncio.create_task(work())
    pids.extend([await pid_in(scripted_world.cwd / f"mine.{role}") for role in ("shell", "child")])
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) == 3 and await becomes_true(are_gone(*pids), 1)


async def test_a_hanging_process_is_not_reused(scripted_world: Any) -> None:
    """A turn in a process that hangs ends at its time-out, and the next turn uses another
    process."""
    async with geminids.Pool(scripted_world.options(grace=0.5), size=1) as pool, pool.chat() as chat:
        (before,) = pool.status()
        os.kill(before.pid, signal.SIGSTOP)
        assert (await chat.ask("hello", timeout=0.5)).outcome == "timed_out"
        result = await chat.ask("again", timeout=15)
        assert (result.outcome, result.text) == ("success", "echo again")
        assert [one.pid for one in pool.status()] != [before.pid]
