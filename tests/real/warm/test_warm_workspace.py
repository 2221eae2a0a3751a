"""A hostile repository has no effect on the warm transport either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geminids
from geminids import Notice
from geminids.gateway import Gateway
from hostile_repository import BAITS, Repository, keys_sent, notices, sent_to_model

pytestmark = [pytest.mark.real, pytest.mark.anyio]

EVIL = ("EVIL-SYSTEM", "EVIL-SKILL", "EVIL-AGENT", "EVIL-EXTENSION", "EVIL-COMMAND")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def evil() -> Iterator[Gateway]:
    """The server to which the hostile repository tries to redirect requests."""
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def repository(make_world: Any, evil: Gateway) -> Repository:
    return Repository(make_world("0.61.0"), evil.url)


async def events_of(chat: geminids.Chat, prompt: str = "hello") -> list[Any]:
    return [event async for event in chat.send(prompt)]


@pytest.mark.parametrize("answer", ["deny", "allow"])
async def test_a_hostile_repository_gains_nothing(repository: Repository, evil: Gateway, answer: str) -> None:
    """The repository contains all baits, and the model uses everything that it offers. Only a call
    that the callback allows has an effect. Notices report the ignored settings."""
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
    assert [word for word in EVIL if word in sent_to_model(world)] == []
    messages = "\n".join(notices(events))
    for name in ("SessionStart", "evil (.gemini/settings.json)", "tools.allowed", "(.gemini/.env)", "/evil"):
        assert name in messages, name


async def test_a_hostile_folder_does_not_affect_other_chats(repository: Repository, evil: Gateway) -> None:
    """A chat in a plain folder has no settings or variables of a chat in a hostile folder of the
    same pool."""
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


async def test_another_mode_in_an_untrusted_folder_is_headless(repository: Repository) -> None:
    """On ACP the CLI allows only the default mode in an untrusted folder. A chat with `yolo`
    therefore uses the headless transport, and a notice reports it."""
    world = repository.plant("hooks").world
    repository.play_along()
    async with geminids.Pool(world.options(approval="yolo")) as pool, pool.chat() as chat:
        events = await events_of(chat)
        assert events[-1].outcome == "success", events[-1].failure
        assert [event.code for event in events if isinstance(event, Notice)].count("transport") == 1
        started = [event for event in events if isinstance(event, geminids.Started)]
        assert [event.transport for event in started] == ["headless"]
        world.gateway.reply(text="and on")
        assert (await chat.ask("again")).answer == "and on"
    assert "SessionStart" not in repository.left


@pytest.mark.deep
async def test_the_bait_is_real(repository: Repository) -> None:
    """Counter-check: with `trust_workspace=True` a hook of the repository runs on the warm
    transport."""
    world = repository.plant("hooks").world
    repository.play_along()
    async with geminids.Pool(world.options(trust_workspace=True)) as pool, pool.chat() as chat:
        events = await events_of(chat)
    assert events[-1].outcome == "success", events[-1].failure
    assert "SessionStart" in repository.left or "BeforeTool" in repository.left
    assert notices(events) == []
