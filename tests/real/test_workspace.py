"""A hostile repository gains nothing: what lies in the folder has no power, unless its owner is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from geminids.gateway import Gateway
from hostile import BAITS, Repository, keys_sent, notices, said_to_the_model, system_prompt

pytestmark = pytest.mark.real

deep = pytest.mark.deep
# What stands in a request where a bait has worked.
EVIL = ("EVIL-SYSTEM", "EVIL-SKILL", "EVIL-AGENT", "EVIL-EXTENSION", "EVIL-COMMAND")


@pytest.fixture
def evil() -> Iterator[Gateway]:
    """The other host."""
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def repository(world: Any, evil: Gateway) -> Repository:
    return Repository(world, evil.url)


def _assert_all_told(world: Any, events: list[Any]) -> None:
    """Every bait has its `Notice(code="workspace")`, which names it and where it lies."""
    told = "\n".join(notices(events))
    settings = ("SessionStart", "BeforeTool", "evil", "tools.allowed", "tools.discoveryCommand")
    for name in (*settings, "tools.callCommand", "model.maxSessionTurns"):
        assert f"{name} (.gemini/settings.json)" in told, name
    rest = ["(.env)", "(.gemini/.env)", f"({world.root}/.env)", "/evil (.gemini/commands)"]
    rest += ["evil-extension (.gemini/extensions)", "evil.toml (.gemini/policies)", "(.gemini/system.md)"]
    rest += ["evil-agent.md (.gemini/agents)", "skill evil-gemini", "skill evil-agents"]
    assert [name for name in rest if name not in told] == []


@pytest.mark.parametrize("approval", ["default", "yolo"])
def test_a_hostile_repository_gains_nothing(repository: Repository, evil: Gateway, approval: str) -> None:
    """All baits at once, and a model that plays along: no mark, no process, no other host, no other key; all is told.

    In yolo the model may use the shell; that is the owner's word and not the repository's.
    """
    world = repository.plant(*BAITS).world
    repository.play_along()
    events = world.events(approval=approval)
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == ({"shell"} if approval == "yolo" else set())
    assert evil.requests == []
    assert keys_sent(world) == {world.gateway.env["GEMINI_API_KEY"]}
    said = said_to_the_model(world)
    assert [word for word in EVIL if word in said] == []
    assert not {"mcp_evil_poke", "poke", "discovered_tool_dig", "evil_toml"} & set(
        world.gateway.requests[0].tools
    )
    assert "PLEASE-RUN-EVERYTHING" in said, "GEMINI.md is text, and stays"
    assert "software engineering" in system_prompt(world)
    _assert_all_told(world, events)


@deep
def test_a_harmless_folder_is_not_talked_about(repository: Repository) -> None:
    """No notice where there is nothing to tell: a GEMINI.md and sources are what every folder has."""
    world = repository.plant("text").world
    repository.write("src/main.py", "print('hello')\n")
    world.gateway.reply(text="hi")
    assert notices(world.events()) == []


@pytest.mark.parametrize(
    ("bait", "marks"),
    [
        ("hooks", {"SessionStart", "BeforeTool"}),
        pytest.param("server", {"evil", "evil-poked"}, marks=deep),
        pytest.param("approval", {"shell"}, marks=deep),
        pytest.param("discovery", {"discovery"}, marks=deep),
    ],
)
def test_the_bait_is_real(repository: Repository, bait: str, marks: set[str]) -> None:
    """With `trust_workspace=True` each bait works by itself, and nothing is told."""
    world = repository.plant(bait).world
    repository.play_along()
    events = world.events(trust_workspace=True)
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == marks
    assert notices(events) == []


@deep
@pytest.mark.parametrize("form", ["// mine\n{} /* end", '{"hooks": {}, "hooks": {"x": []}, {}', "\r\n\t{}\n"])
def test_settings_in_odd_forms(repository: Repository, form: str) -> None:
    """Comments and keys that are there twice: what the CLI understands is understood here."""
    repository.plant("hooks", "server")
    plain = json.dumps(repository.settings)
    inner = form.replace("{}", plain, 1) if form.count("hooks") == 0 else form[:-2] + plain[1:]
    world = repository.world
    repository.write(".gemini/settings.json", inner)
    repository.play_along()
    assert world.ask().ok
    assert repository.left == set()
    repository.play_along()
    assert world.ask(trust_workspace=True).ok
    assert repository.left >= {"SessionStart", "evil"}


@deep
@pytest.mark.parametrize(("theirs", "ours"), [(1, None), (1, 2), (50, 1)])
def test_the_turns_are_the_owners(repository: Repository, theirs: int, ours: int | None) -> None:
    """A repository can neither lower nor raise `max_turns`; trusted, it can set what the owner has not."""
    world = repository.world
    repository.settings = {"model": {"maxSessionTurns": theirs}}
    repository.plant()
    repository.play_along()
    result = world.ask(max_turns=ours)
    assert result.outcome == ("max_turns" if ours == 1 else "success"), result.failure
    if ours is None:
        repository.play_along()
        assert world.ask(trust_workspace=True).outcome == "max_turns"


@deep
def test_a_skill_of_the_folder(repository: Repository) -> None:
    """A skill in the folder is neither seen nor activated; trusted, it is."""
    world = repository.plant("skills").world
    repository.play_along()
    assert world.ask(approval="yolo").ok
    assert "EVIL-SKILL" not in said_to_the_model(world)
    repository.play_along()
    assert world.ask(approval="yolo", trust_workspace=True).ok
    assert "EVIL-SKILL-BODY" in said_to_the_model(world)


@deep
def test_an_agent_of_the_folder(repository: Repository) -> None:
    """An agent in the folder is not offered to the model; trusted, neither: the CLI wants a human's yes."""
    world = repository.plant("agents").world
    for trust in (False, True):
        world.gateway.reply(text="hi")
        assert world.ask(approval="yolo", trust_workspace=trust).ok
        assert "EVIL-AGENT" not in said_to_the_model(world)


@deep
@pytest.mark.parametrize("bait", ["extension", "policy"])
def test_what_no_release_loads_from_a_folder(repository: Repository, bait: str) -> None:
    """Extensions and policies in a folder do nothing, trusted or not: these releases never look there."""
    world = repository.plant(bait).world
    for trust in (False, True):
        repository.play_along()
        assert world.ask(trust_workspace=trust).ok
    assert repository.left == set()
    assert "EVIL" not in said_to_the_model(world)


@deep
@pytest.mark.parametrize("prompt", ["/evil", "/ evil now", "/workspace.evil"])
def test_a_command_of_the_folder_is_refused(repository: Repository, prompt: str) -> None:
    """A prompt that calls a slash command of the folder starts nothing."""
    world = repository.plant("command").world
    result = world.ask(prompt, approval="yolo")
    assert result.failure
    assert result.failure.kind == "bad_prompt"
    assert "trust_workspace" in result.failure.hint
    assert (repository.left, world.gateway.requests) == (set(), [])


@deep
def test_a_command_of_the_folder_can_be_trusted(repository: Repository) -> None:
    """Trusted, it is run, `!{shell}` and all; and as literal text it is text."""
    world = repository.plant("command").world
    world.gateway.reply(text="hi")
    assert world.ask("/evil", approval="yolo", literal=True).ok
    assert repository.left == set()
    world.gateway.reply(text="hi")
    assert world.ask("/evil", approval="yolo", trust_workspace=True).ok
    assert repository.left == {"command"}
    assert "EVIL-COMMAND" in said_to_the_model(world)
