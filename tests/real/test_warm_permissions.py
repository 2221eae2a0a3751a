"""Permissions that really ask: who decides, and what the world shows afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids import Notice, PermissionAsked, PermissionDecided, Permissions, ToolFinished
from geminids.gateway.request import Request
from geminids.gateway.script.script import Reply, make_reply
from geminids.gateway.script.scripted import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def act(request: Request) -> Reply | None:
    """The model does what the prompt says: `touch NAME` in a shell, or `write NAME`; then it says done."""
    if request.method != "stream":
        return None
    last = request.contents[-1]["parts"]
    if any("functionResponse" in part for part in last):
        return make_reply({"text": "done"})
    verb, name = last[-1]["text"].split()
    if verb == "touch":
        return make_reply({"calls": [("run_shell_command", {"command": f"touch {name}"})]})
    return make_reply({"calls": [("write_file", {"file_path": name, "content": "x\n"})]})


@pytest.fixture
def stage(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(act)
    return world


async def send(chat: geminids.Chat, prompt: str, **fields: Any) -> tuple[list[Any], geminids.Result]:
    sending = chat.send(prompt, **fields)
    events = [event async for event in sending]
    return events, sending.result


def decided(events: list[Any]) -> list[tuple[str, str]]:
    return [(one.decision, one.by) for one in events if isinstance(one, PermissionDecided)]


async def test_every_way_to_decide(stage: Any) -> None:
    """Once, always, no, too late, a callback that raises or is cancelled or talks nonsense: the files tell."""
    cwd: Path = stage.cwd
    asked: list[PermissionAsked] = []
    answer: Any = None

    async def decide(ask: PermissionAsked) -> Any:
        asked.append(ask)
        return await answer() if callable(answer) else answer

    async def raises() -> str:
        raise ValueError("no idea")

    async def is_cancelled() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.cancel_scope.cancel()
            await anyio.sleep(10)
        raise anyio.get_cancelled_exc_class()()

    async with geminids.Pool(stage.options(), on_permission=decide) as pool:
        async with pool.chat() as chat:
            answer = "allow"
            events, result = await send(chat, "touch once.txt")
            assert (cwd / "once.txt").exists() and result.ok
            assert decided(events) == [("allow", "callback")]
            assert asked[-1].command == "touch once.txt" and asked[-1].cwd == os.path.realpath(cwd)
            events, _ = await send(chat, "touch twice.txt")
            assert len(asked) == 2, "once is once"

            answer = "deny"
            events, result = await send(chat, "touch never.txt")
            assert not (cwd / "never.txt").exists() and result.ok
            (tool,) = [one for one in events if isinstance(one, ToolFinished)]
            assert (tool.status, tool.error) == ("denied", "denied by the callback")

            for said, reason in (
                (raises, "the callback failed: ValueError: no idea"),
                (is_cancelled, "the callback was cancelled"),
                ("perhaps", "expected allow, allow_always or deny"),
            ):
                answer = said
                events, result = await send(chat, "write never.txt")
                assert not (cwd / "never.txt").exists(), reason
                assert decided(events) == [("deny", "callback")]
                assert result.ok and reason in (result.decisions[0].reason or "")

            answer = lambda: anyio.sleep(60)  # noqa: E731
            events, result = await send(chat, "write never.txt", permission_timeout=0.3)
            assert decided(events) == [("deny", "timeout")] and not (cwd / "never.txt").exists()
            assert result.decisions[0].waited_ms >= 300

            answer, before = "allow_always", len(asked)
            await send(chat, "touch a.txt")
            answer = "deny"
            (cwd / "a.txt").unlink()
            events, _ = await send(chat, "touch a.txt")
            assert len(asked) == before + 1 and decided(events) == [("allow", "rule")]
            assert (cwd / "a.txt").exists()
            events, _ = await send(chat, "touch b.txt")
            assert decided(events) == [("deny", "callback")] and not (cwd / "b.txt").exists()
        async with pool.chat() as other:
            events, _ = await send(other, "touch a.txt")
            assert decided(events) == [("deny", "callback")], "always stays within its chat"


async def test_a_build_file_is_written_after_a_yes(stage: Any) -> None:
    """The write to pyproject.toml that headless 0.61 refuses, even in yolo, works after a yes, and not after a no."""
    file: Path = stage.cwd / "pyproject.toml"
    headless = await geminids.ask("write pyproject.toml", stage.options(approval="yolo"))
    assert headless.ok and not file.exists()

    for answer, there in (("deny", False), ("allow", True)):
        asked: list[PermissionAsked] = []

        def decide(ask: PermissionAsked, answer: str = answer, asked: list[Any] = asked) -> Any:
            asked.append(ask)
            return answer

        result = await geminids.ask(
            "write pyproject.toml", stage.options(approval="yolo"), on_permission=decide
        )
        assert result.ok and file.exists() is there
        assert [one.decision for one in result.decisions] == [answer]
        assert asked[0].changes[0].diff is not None and "+x" in asked[0].changes[0].diff


async def test_an_answer_after_the_turn_was_cancelled_is_no_answer(stage: Any) -> None:
    """A person who says yes when the turn is over allows nothing; the chat takes the next turn."""
    waiting, late = anyio.Event(), anyio.Event()

    async def decide(ask: PermissionAsked) -> Any:
        waiting.set()
        with anyio.CancelScope(shield=True):
            await late.wait()
        return "allow"

    async with geminids.Pool(stage.options(), on_permission=decide) as pool, pool.chat() as chat:
        sending = chat.send("touch late.txt")
        await waiting.wait()
        sending.stop("changed my mind")
        events: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                events.extend([event async for event in sending])

            tasks.start_soon(read)
            await anyio.sleep(0.2)
            late.set()
        assert sending.result.outcome == "interrupted"
        assert decided(events) == [("deny", "cancel")]
        assert not (stage.cwd / "late.txt").exists()
        result = await chat.ask("touch next.txt")
        assert result.ok and (stage.cwd / "next.txt").exists()
        assert not (stage.cwd / "late.txt").exists()


async def test_ask_is_a_deny_where_there_is_nobody_to_ask(stage: Any) -> None:
    """`ask` goes to the warm lane where somebody answers; without anybody it is a deny with that reason."""
    options = stage.options(permissions=Permissions(shell="ask"), approval="yolo")
    nobody = await geminids.ask("touch a.txt", options)
    (tool,) = [tool for turn in nobody.turns for tool in turn.tools]
    assert tool.status == "denied" and "needs permission" in (tool.error or "")
    async with geminids.Pool(options) as pool, pool.chat() as chat:
        events, _ = await send(chat, "touch a.txt")
        (tool,) = [one for one in events if isinstance(one, ToolFinished)]
        assert tool.status == "denied" and "there is nobody to ask" in (tool.error or "")
        assert not (stage.cwd / "a.txt").exists()
    somebody = await geminids.ask("touch a.txt", options, on_permission=lambda ask: "allow")
    assert somebody.ok and (stage.cwd / "a.txt").exists()
    assert [(one.decision, one.by) for one in somebody.decisions] == [("allow", "callback")]


@pytest.mark.deep
async def test_a_run_that_cannot_ask_says_so(stage: Any) -> None:
    """A resumed run goes headless, with a notice; what would be asked there is refused."""
    first = await geminids.ask("write x.txt", stage.options())
    async with geminids.open_run(
        "touch a.txt", stage.options(resume=first.session_id), on_permission=lambda ask: "allow"
    ) as run:
        events = [event async for event in run]
    assert [one.code for one in events if isinstance(one, Notice)].count("lane") == 1
    assert run.result.ok and not (stage.cwd / "a.txt").exists()
