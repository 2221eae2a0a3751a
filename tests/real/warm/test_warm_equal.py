"""A turn on the warm transport has the same result as a headless run of the same script."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids.gateway.script.scripted_upstream import Scripted
from warm_scenarios import SCENES, plain_result, play

pytestmark = pytest.mark.real
NAMES = [name for name in SCENES if name != "subtask"]


@pytest.fixture(params=["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)])
def release(request: pytest.FixtureRequest) -> str:
    """Use the newest release and the oldest one with a warm transport."""
    return str(request.param)


@pytest.fixture
def scripted_world(make_world: Any, release: str) -> Any:
    """A world whose model replies with the scene that the prompt names."""
    world = make_world(release)
    world.gateway.upstream = Scripted(play)
    return world


def make_options(world: Any, **fields: Any) -> geminids.Options:
    result: geminids.Options = world.options(
        approval="yolo", max_attempts=1, permissions=geminids.Permissions(network="deny"), **fields
    )
    return result


def make_folder(world: Any, name: str) -> str:
    place: Path = world.root / name
    place.mkdir(exist_ok=True)
    (place / "a.txt").write_text("hello\n")
    return str(place)


async def run_headless(world: Any) -> dict[str, Any]:
    """Run each scene headless in its own folder. Return the results by scene."""
    results: dict[str, Any] = {}
    limit = anyio.CapacityLimiter(3)

    async def run_scene(name: str) -> None:
        async with limit:
            cwd = make_folder(world, f"cold-{name}")
            result = await geminids.ask(f"do {name}", make_options(world, cwd=cwd))
            results[name] = plain_result(result, cwd)

    async with anyio.create_task_group() as tasks:
        for name in NAMES:
            tasks.start_soon(run_scene, name)
    return results


@pytest.fixture
def anyio_backend() -> str:
    """Use asyncio only: tests/warm also tests trio."""
    return "asyncio"


@pytest.mark.deep
@pytest.mark.anyio
async def test_twenty_turns_of_one_chat_and_thirty_chats_at_once(scripted_world: Any) -> None:
    """Twenty turns of one chat, and one turn in each of 30 chats that share a process, have the
    same results as headless runs of the same scenes."""
    expected = await run_headless(scripted_world)
    results: list[tuple[str, Any]] = []
    async with geminids.Pool(make_options(scripted_world), size=1, chats=31) as pool:
        cwd = make_folder(scripted_world, "warm")
        async with pool.chat(cwd=cwd) as chat:
            for number in range(20):
                name = NAMES[number % len(NAMES)]
                (Path(cwd) / "new.txt").unlink(missing_ok=True)
                results.append((name, plain_result(await chat.ask(f"do {name}"), cwd)))

        async with AsyncExitStack() as open_chats:
            places = [make_folder(scripted_world, f"chat-{number}") for number in range(30)]
            chats = [await open_chats.enter_async_context(pool.chat(cwd=place)) for place in places]

            async def run_in_chat(number: int) -> None:
                name = NAMES[number % len(NAMES)]
                results.append((name, plain_result(await chats[number].ask(f"do {name}"), places[number])))

            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(run_in_chat, number)
            assert [status.chats for status in pool.status()] == [30]
    assert len(results) == 50
    for name, result in results:
        assert result == expected[name], name
