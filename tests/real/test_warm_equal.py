"""A turn on the warm lane is what a headless run of the same script is, field by field."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids.gateway.script.scripted import Scripted
from warm_scenes import SCENES, plain_result, play

pytestmark = pytest.mark.real
NAMES = [name for name in SCENES if name != "subtask"]


@pytest.fixture(params=["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)])
def release(request: pytest.FixtureRequest) -> str:
    """The newest, and the first that the warm lane takes."""
    return str(request.param)


@pytest.fixture
def stage(make_world: Any, release: str) -> Any:
    """A world whose model plays the scene that the prompt names."""
    world = make_world(release)
    world.gateway.upstream = Scripted(play)
    return world


def options(world: Any, **fields: Any) -> geminids.Options:
    made: geminids.Options = world.options(
        approval="yolo", max_attempts=1, permissions=geminids.Permissions(network="deny"), **fields
    )
    return made


def folder(world: Any, name: str) -> str:
    place: Path = world.root / name
    place.mkdir(exist_ok=True)
    (place / "a.txt").write_text("hello\n")
    return str(place)


async def headless(world: Any) -> dict[str, Any]:
    """Each scene as a headless run in a folder of its own."""
    found: dict[str, Any] = {}
    limit = anyio.CapacityLimiter(3)

    async def one(name: str) -> None:
        async with limit:
            cwd = folder(world, f"cold-{name}")
            result = await geminids.ask(f"do {name}", options(world, cwd=cwd))
            found[name] = plain_result(result, cwd)

    async with anyio.create_task_group() as tasks:
        for name in NAMES:
            tasks.start_soon(one, name)
    return found


@pytest.fixture
def anyio_backend() -> str:
    """One loop is enough here: tests/warm has both."""
    return "asyncio"


@pytest.mark.deep
@pytest.mark.anyio
async def test_twenty_turns_of_one_chat_and_thirty_chats_at_once(stage: Any) -> None:
    """20 turns in one chat, and 30 chats at once in one process: the same results as 1 headless run each."""
    expected = await headless(stage)
    found: list[tuple[str, Any]] = []
    async with geminids.Pool(options(stage), size=1, chats=31) as pool:
        cwd = folder(stage, "warm")
        async with pool.chat(cwd=cwd) as chat:
            for number in range(20):
                name = NAMES[number % len(NAMES)]
                (Path(cwd) / "new.txt").unlink(missing_ok=True)
                found.append((name, plain_result(await chat.ask(f"do {name}"), cwd)))

        async with AsyncExitStack() as open_chats:
            places = [folder(stage, f"chat-{number}") for number in range(30)]
            chats = [await open_chats.enter_async_context(pool.chat(cwd=place)) for place in places]

            async def alone(number: int) -> None:
                name = NAMES[number % len(NAMES)]
                found.append((name, plain_result(await chats[number].ask(f"do {name}"), places[number])))

            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(alone, number)
            assert [one.chats for one in pool.status()] == [30]
    assert len(found) == 50
    for name, result in found:
        assert result == expected[name], name
