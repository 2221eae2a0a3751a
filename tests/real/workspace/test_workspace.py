"""A hostile repository has no effect: its settings are ignored unless the folder is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from geminids.gateway import Gateway
from hostile_repository import BAITS, Repository, keys_sent, notices, sent_to_model, system_prompt

pytestmark = pytest.mark.real

deep = pytest.mark.deep
# Texts that occur in a request only if a bait has worked.
EVIL = ("EVIL-SYSTEM", "EVIL-SKILL", "EVIL-AGENT", "EVIL-EXTENSION", "EVIL-COMMAND")


@pytest.fixture
def evil() -> Iterator[Gateway]:
    """The server to which the hostile repository tries to redirect requests."""
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def repository(world: Any, evil: Gateway) -> Repository:
    return Repository(world, evil.url)


def _assert_all_reported(world: Any, events: list[Any]) -> None:
    """For every bait there is a `Notice(code="workspace")` that names the bait and its file."""
    messages = "\n".join(notices(events))
    settings = ("SessionStart", "BeforeTool", "evil", "tools.allowed", "tools.discoveryCommand")
    for name in (*settings, "tools.callCommand", "model.maxSessionTurns"):
        assert f"{name} (.gemini/settings.json)" in messages, name
    other_baits = ["(.env)", "(.gemini/.env)", f"({world.root}/.env)", "/evil (.gemini/commands)"]
    other_baits += [
        "evil-extension (.gemini/extensions)",
        "evil.toml (.gemini/policies)",
        "(.gemini/system.md)",
    ]
    other_baits += ["evil-agent.md (.gemini/agents)", "skill evil-gemini", "skill evil-agents"]
    assert [name for name in other_baits if name not in messages] == []


@pytest.mark.parametrize("approval", ["default", "yolo"])
def test_a_hostile_repository_gains_nothing(repository: Repository, evil: Gateway, approval: str) -> None:
    """A repository with all baits has no effect, although the model uses everything that it offers.

    No bait creates its marker file, no request goes to the other host, and the user's key is used.
    Notices report each ignored setting. In yolo the shell tool works: the user allowed it.
    """
    world = repository.plant(*BAITS).world
    repository.play_along()
    events = world.events(approval=approval)
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == ({"shell"} if approval == "yolo" else set())
    assert evil.requests == []
    assert keys_sent(world) == {world.gateway.env["GEMINI_API_KEY"]}
    sent = sent_to_model(world)
    assert [word for word in EVIL if word in sent] == []
    assert not {"mcp_evil_poke", "poke", "discovered_tool_dig", "evil_toml"} & set(
        world.gateway.requests[0].tools
    )
    assert "PLEASE-RUN-EVERYTHING" in sent, "GEMINI.md is still sent"
    assert "software engineering" in system_prompt(world)
    _assert_all_reported(world, events)


@deep
def test_a_harmless_folder_gives_no_notice(repository: Repository) -> None:
    """A run in a folder with only a GEMINI.md and source files emits no workspace notice."""
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
    """Counter-check: with `trust_workspace=True` each bait works, and no workspace notice is
    emitted."""
    world = repository.plant(bait).world
    repository.play_along()
    events = world.events(trust_workspace=True)
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == marks
    assert notices(events) == []


@deep
@pytest.mark.parametrize("form", ["// mine\n{} /* end", '{"hooks": {}, "hooks": {"x": []}, {}', "\r\n\t{}\n"])
def test_settings_in_odd_forms(repository: Repository, form: str) -> None:
    """Hooks and servers in settings with comments or duplicate keys are ignored too. If the folder
    is trusted, they work."""
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
@pytest.mark.parametrize(("repository_limit", "max_turns"), [(1, None), (1, 2), (50, 1)])
def test_a_repository_cannot_change_max_turns(
    repository: Repository, repository_limit: int, max_turns: int | None
) -> None:
    """A repository can neither lower nor raise the caller's `max_turns`. If the folder is trusted
    and the caller sets no limit, the repository's limit applies."""
    world = repository.world
    repository.settings = {"model": {"maxSessionTurns": repository_limit}}
    repository.plant()
    repository.play_along()
    result = world.ask(max_turns=max_turns)
    assert result.outcome == ("max_turns" if max_turns == 1 else "success"), result.failure
    if max_turns is None:
        repository.play_along()
        assert world.ask(trust_workspace=True).outcome == "max_turns"


@deep
def test_a_skill_in_the_folder_needs_trust(repository: Repository) -> None:
    """The model is not offered a skill of an untrusted folder. If the folder is trusted, the model
    can activate it."""
    world = repository.plant("skills").world
    repository.play_along()
    assert world.ask(approval="yolo").ok
    assert "EVIL-SKILL" not in sent_to_model(world)
    repository.play_along()
    assert world.ask(approval="yolo", trust_workspace=True).ok
    assert "EVIL-SKILL-BODY" in sent_to_model(world)


@deep
def test_an_agent_in_the_folder_is_never_offered(repository: Repository) -> None:
    """The model is not offered an agent of the folder, even if the folder is trusted: the CLI
    requires the approval of a person."""
    world = repository.plant("agents").world
    for trust in (False, True):
        world.gateway.reply(text="hi")
        assert world.ask(approval="yolo", trust_workspace=trust).ok
        assert "EVIL-AGENT" not in sent_to_model(world)


@deep
@pytest.mark.parametrize("bait", ["extension", "policy"])
def test_extensions_and_policies_in_the_folder_have_no_effect(repository: Repository, bait: str) -> None:
    """Extensions and policies in the folder have no effect, even if it is trusted: the tested
    releases do not load them."""
    world = repository.plant(bait).world
    for trust in (False, True):
        repository.play_along()
        assert world.ask(trust_workspace=trust).ok
    assert repository.left == set()
    assert "EVIL" not in sent_to_model(world)


@deep
@pytest.mark.parametrize("prompt", ["/evil", "/ evil now", "/workspace.evil"])
def test_a_command_of_the_folder_is_refused(repository: Repository, prompt: str) -> None:
    """A prompt that calls a slash command of an untrusted folder fails with `bad_prompt`. The
    command does not run, and no request is sent."""
    world = repository.plant("command").world
    result = world.ask(prompt, approval="yolo")
    assert result.failure
    assert result.failure.kind == "bad_prompt"
    assert "trust_workspace" in result.failure.hint
    assert (repository.left, world.gateway.requests) == (set(), [])


@deep
def test_a_command_of_the_folder_can_be_trusted(repository: Repository) -> None:
    """If the folder is trusted, its slash command runs, with its `!{shell}` part. With
    `literal=True` the prompt is sent as text."""
    world = repository.plant("command").world
    world.gateway.reply(text="hi")
    assert world.ask("/evil", approval="yolo", literal=True).ok
    assert repository.left == set()
    world.gateway.reply(text="hi")
    assert world.ask("/evil", approval="yolo", trust_workspace=True).ok
    assert repository.left == {"command"}
    assert "EVIL-COMMAND" in sent_to_model(world)
