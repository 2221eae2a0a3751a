"""Permission requests on the warm transport: each decision and its effect on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids import Notice, PermissionAsked, PermissionDecided, Permissions, ToolFinished
from geminids.gateway.request import Request
from geminids.gateway.script.replies import Reply, make_reply
from geminids.gateway.script.scripted_upstream import Scripted

pytestmark = [pytest.mark.real, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reply_to_prompt(request: Request) -> Reply | None:
    """Reply with the tool call that the prompt names (`touch NAME` or `write NAME`), then with
    text."""
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
def scripted_world(make_world: Any) -> Any:
    world = make_world("0.61.0")
    world.gateway.upstream = Scripted(reply_to_prompt)
    return world


async def send(chat: geminids.Chat, prompt: str, **fields: Any) -> tuple[list[Any], geminids.Result]:
    turn = chat.send(prompt, **fields)
    events = [event async for event in turn]
    return events, turn.result


def decisions_in(events: list[Any]) -> list[tuple[str, str]]:
    return [(one.decision, one.by) for one in events if isinstance(one, PermissionDecided)]


async def test_each_decision_has_its_effect(scripted_world: Any) -> None:
    """A call runs only after `allow` or `allow_always`. `deny`, a late answer, a failing callback
    and an unknown answer deny it. `allow_always` applies to the same command in the same chat
    only."""
    cwd: Path = scripted_world.cwd
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

    async with geminids.Pool(scripted_world.options(), on_permission=decide) as pool:
        async with pool.chat() as chat:
            answer = "allow"
            events, result = await send(chat, "touch once.txt")
            assert (cwd / "once.txt").exists() and result.ok
            assert decisions_in(events) == [("allow", "callback")]
            assert asked[-1].command == "touch once.txt" and asked[-1].cwd == os.path.realpath(cwd)
            events, _ = await send(chat, "touch twice.txt")
            assert len(asked) == 2, "`allow` applies to one call only"

            answer = "deny"
            events, result = await send(chat, "touch never.txt")
            assert not (cwd / "never.txt").exists() and result.ok
            (tool,) = [one for one in events if isinstance(one, ToolFinished)]
            assert (tool.status, tool.error) == ("denied", "denied by the callback")

            for callback_answer, reason in (
                (raises, "the callback failed: ValueError: no idea"),
                (is_cancelled, "the callback was cancelled"),
                ("perhaps", "expected 'allow', 'allow_always' or 'deny'"),
            ):
                answer = callback_answer
                events, result = await send(chat, "write never.txt")
                assert not (cwd / "never.txt").exists(), reason
                assert decisions_in(events) == [("deny", "callback")]
                assert result.ok and reason in (result.decisions[0].reason or "")

            answer = lambda: anyio.sleep(60)  # noqa: E731
            events, result = await send(chat, "write never.txt", permission_timeout=0.3)
            assert decisions_in(events) == [("deny", "timeout")] and not (cwd / "never.txt").exists()
            assert result.decisions[0].waited_ms >= 300

            answer, before = "allow_always", len(asked)
            await send(chat, "touch a.txt")
            answer = "deny"
            (cwd / "a.txt").unlink()
            events, _ = await send(chat, "touch a.txt")
            assert len(asked) == before + 1 and decisions_in(events) == [("allow", "rule")]
            assert (cwd / "a.txt").exists()
            events, _ = await send(chat, "touch b.txt")
            assert decisions_in(events) == [("deny", "callback")] and not (cwd / "b.txt").exists()
        async with pool.chat() as other:
            events, _ = await send(other, "touch a.txt")
            assert decisions_in(events) == [("deny", "callback")], "`allow_always` applies to one chat"


async def test_a_build_file_is_written_if_allowed(scripted_world: Any) -> None:
    """A headless CLI 0.61 never writes pyproject.toml, even in yolo. On the warm transport it is
    written if the callback allows it, and not if the callback denies it."""
    file: Path = scripted_world.cwd / "pyproject.toml"
    headless = await geminids.ask("write pyproject.toml", scripted_world.options(approval="yolo"))
    assert headless.ok and not file.exists()

    for answer, is_written in (("deny", False), ("allow", True)):
        asked: list[PermissionAsked] = []

        def decide(ask: PermissionAsked, answer: str = answer, asked: list[Any] = asked) -> Any:
            asked.append(ask)
            return answer

        result = await geminids.ask(
            "write pyproject.toml", scripted_world.options(approval="yolo"), on_permission=decide
        )
        assert result.ok and file.exists() is is_written
        assert [one.decision for one in result.decisions] == [answer]
        assert asked[0].changes[0].diff is not None and "+x" in asked[0].changes[0].diff


async def test_an_answer_after_a_stop_is_ignored(scripted_world: Any) -> None:
    """An `allow` that arrives after the turn was stopped has no effect, and the next turn works."""
    waiting, late = anyio.Event(), anyio.Event()

    async def decide(ask: PermissionAsked) -> Any:
        waiting.set()
        with anyio.CancelScope(shield=True):
            await late.wait()
        return "allow"

    async with geminids.Pool(scripted_world.options(), on_permission=decide) as pool, pool.chat() as chat:
        turn = chat.send("touch late.txt")
        await waiting.wait()
        turn.stop("changed my mind")
        events: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                events.extend([event async for event in turn])

            tasks.start_soon(read)
            await anyio.sleep(0.2)
            late.set()
        assert turn.result.outcome == "interrupted"
        assert decisions_in(events) == [("deny", "cancel")]
        assert not (scripted_world.cwd / "late.txt").exists()
        result = await chat.ask("touch next.txt")
        assert result.ok and (scripted_world.cwd / "next.txt").exists()
        assert not (scripted_world.cwd / "late.txt").exists()


async def test_ask_denies_if_nobody_can_answer(scripted_world: Any) -> None:
    """With `ask` permissions and a callback, the callback decides. Without a callback the call is
    denied, and the error gives the reason."""
    options = scripted_world.options(permissions=Permissions(shell="ask"), approval="yolo")
    without_callback = await geminids.ask("touch a.txt", options)
    (tool,) = [tool for turn in without_callback.turns for tool in turn.tools]
    assert tool.status == "denied" and "needs permission" in (tool.error or "")
    async with geminids.Pool(options) as pool, pool.chat() as chat:
        events, _ = await send(chat, "touch a.txt")
        (tool,) = [one for one in events if isinstance(one, ToolFinished)]
        assert tool.status == "denied" and "there is no user to ask" in (tool.error or "")
        assert not (scripted_world.cwd / "a.txt").exists()
    with_callback = await geminids.ask("touch a.txt", options, on_permission=lambda ask: "allow")
    assert with_callback.ok and (scripted_world.cwd / "a.txt").exists()
    assert [(one.decision, one.by) for one in with_callback.decisions] == [("allow", "callback")]


@pytest.mark.deep
async def test_a_resumed_run_cannot_ask(scripted_world: Any) -> None:
    """A resumed run uses the headless transport and emits a notice. A call that needs permission is
    denied there, although there is a callback."""
    first = await geminids.ask("write x.txt", scripted_world.options())
    async with geminids.open_run(
        "touch a.txt", scripted_world.options(resume=first.session_id), on_permission=lambda ask: "allow"
    ) as run:
        events = [event async for event in run]
    assert [one.code for one in events if isinstance(one, Notice)].count("transport") == 1
    assert run.result.ok and not (scripted_world.cwd / "a.txt").exists()
