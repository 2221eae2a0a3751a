"""A hostile repository gains nothing on the warm lane either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geminids
from geminids import Notice
from geminids.gateway import Gateway
from hostile import BAITS, Repository, keys_sent, notices, said_to_the_model

pytestmark = [pytest.mark.real, pytest.mark.anyio]

EVIL = ("EVIL-SYSTEM", "EVIL-SKILL", "EVIL-AGENT", "EVIL-EXTENSION", "EVIL-COMMAND")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def evil() -> Iterator[Gateway]:
    """The other host."""
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def repository(make_world: Any, evil: Gateway) -> Repository:
    return Repository(make_world("0.61.0"), evil.url)


async def events_of(chat: geminids.Chat, prompt: str = "hello") -> list[Any]:
    return [event async for event in chat.send(prompt)]


@pytest.mark.parametrize("answer", ["deny", "allow"])
async def test_a_hostile_repository_gains_nothing(repository: Repository, evil: Gateway, answer: str) -> None:
    """All baits at once, and a model that plays along: only what somebody allows happens, and all is told."""
    world = repository.plant(*BAITS).world
    repository.play_along()

    def decide(ask: geminids.PermissionAsked) -> Any:
        return answer

    async with geminids.Pool(world.options(), on_permission=decide) as pool, pool.chat() as chat:
        events = await events_of(chat)
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == ({"shell"} if answer == "allow" else set())
    assert evil.requests == []
    assert keys_sent(world) == {world.gateway.env["GEMINI_API_KEY"]}
    assert [word for word in EVIL if word in said_to_the_model(world)] == []
    told = "\n".join(notices(events))
    for name in ("SessionStart", "evil (.gemini/settings.json)", "tools.allowed", "(.gemini/.env)", "/evil"):
        assert name in told, name


async def test_a_neighbour_is_not_infected(repository: Repository, evil: Gateway) -> None:
    """Chats of a hostile folder and of a plain one in one pool: neither settings nor variables cross over."""
    world = repository.plant(*BAITS).world
    plain: Path = world.root / "plain"
    plain.mkdir()
    async with (
        geminids.Pool(world.options()) as pool,
        pool.chat() as hostile,
        pool.chat(cwd=str(plain)) as chat,
    ):
        repository.play_along()
        await events_of(hostile)
        world.gateway.reply(calls=[("run_shell_command", {"command": "env > variables"})])
        world.gateway.reply(text="done")
        await chat.set_mode("yolo")
        assert (await chat.ask("go")).ok
    variables = (plain / "variables").read_text()
    assert evil.url not in variables and "EVIL" not in variables
    assert repository.left == set()


async def test_another_mode_in_such_a_folder_goes_headless(repository: Repository) -> None:
    """A folder that is not trusted has the default mode alone on ACP: yolo takes the other lane, and says so."""
    world = repository.plant("hooks").world
    repository.play_along()
    async with geminids.Pool(world.options(approval="yolo")) as pool, pool.chat() as chat:
        events = await events_of(chat)
        assert events[-1].outcome == "success", events[-1].failure
        assert [one.code for one in events if isinstance(one, Notice)].count("lane") == 1
        assert [one.lane for one in events if isinstance(one, geminids.Started)] == ["headless"]
        world.gateway.reply(text="and on")
        assert (await chat.ask("again")).answer == "and on"
    assert "SessionStart" not in repository.left


@pytest.mark.deep
async def test_the_bait_is_real(repository: Repository) -> None:
    """With `trust_workspace=True` a hook of the repository runs here too."""
    world = repository.plant("hooks").world
    repository.play_along()
    async with geminids.Pool(world.options(trust_workspace=True)) as pool, pool.chat() as chat:
        events = await events_of(chat)
    assert events[-1].outcome == "success", events[-1].failure
    assert "SessionStart" in repository.left or "BeforeTool" in repository.left
    assert notices(events) == []
