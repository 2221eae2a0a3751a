"""The user's own things keep working in a folder that is not trusted, also where the repository has namesakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostile import Repository, notices, poke_server, said_to_the_model

pytestmark = pytest.mark.real

deep = pytest.mark.deep


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world)


def _hook(repository: Repository, name: str, mark: str) -> dict[str, Any]:
    hook = {"type": "command", "name": name, "command": repository.touch(mark)}
    return {"hooks": {"SessionStart": [{"hooks": [hook]}]}}


def _users(repository: Repository, **settings: Any) -> None:
    """The user's own `.gemini`, with a text and a skill in it."""
    gemini = repository.world.home / ".gemini"
    files = {
        "settings.json": json.dumps(settings),
        "GEMINI.md": "USERS-TEXT",
        "skills/users-skill/SKILL.md": "---\nname: users-skill\ndescription: USERS-SKILL\n---\nDo.\n",
    }
    for name, text in files.items():
        Path(gemini / name).parent.mkdir(parents=True, exist_ok=True)
        Path(gemini / name).write_text(text)


def _server_is_trusted(repository: Repository, name: str) -> dict[str, Any]:
    return {"mcpServers": {name: {**poke_server(repository.marks, "users"), "trust": True}}}


def test_hooks_servers_texts_and_skills_of_the_users(repository: Repository) -> None:
    """In a hostile repository too, what the user has set up for every folder is there, and the rest is not."""
    _users(repository, **_hook(repository, "mine", "users-hook"), **_server_is_trusted(repository, "own"))
    world = repository.plant("hooks", "server", "skills", "text").world
    world.gateway.reply(calls=[("mcp_own_poke", {})])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo")
    assert result.ok, result.failure
    assert repository.left == {"users-hook", "users", "users-poked"}
    said = said_to_the_model(world)
    assert [word for word in ("USERS-TEXT", "USERS-SKILL", "PLEASE-RUN-EVERYTHING") if word not in said] == []
    assert "EVIL" not in said


@deep
def test_a_server_with_the_name_of_the_users(repository: Repository) -> None:
    """Of two servers with one name, the user's is the one that is started."""
    _users(repository, **_server_is_trusted(repository, "evil"))
    world = repository.plant("server").world
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert repository.left == {"users"}
    world.gateway.reply(text="hi")
    assert world.ask(trust_workspace=True).ok
    assert repository.left == {"users", "evil"}


@deep
def test_a_server_with_the_name_of_the_runs(repository: Repository) -> None:
    """The same for a server that the caller gives by `mcp_servers`."""
    from geminids import McpServer

    world = repository.plant("server").world
    given = poke_server(repository.marks, "callers")
    world.gateway.reply(text="hi")
    servers = {"evil": McpServer(command=given["command"], args=tuple(given["args"]))}
    assert world.ask(mcp_servers=servers).ok
    assert repository.left == {"callers"}


@deep
def test_a_hook_with_the_name_of_the_users(repository: Repository) -> None:
    """A namesake of a hook of the user's does not run."""
    _users(repository, **_hook(repository, "SessionStart", "users-hook"))
    world = repository.plant("hooks").world
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert repository.left == {"users-hook"}


@deep
def test_the_folder_that_is_the_users_home(repository: Repository) -> None:
    """In the user's home itself, `.gemini` is the user's own: it works, and nothing is told."""
    world = repository.world
    _users(repository, **_hook(repository, "mine", "users-hook"))
    (world.home / ".env").write_text("USERS_VARIABLE=users-value\n")
    world.gateway.reply(calls=[("run_shell_command", {"command": "env > seen.txt"})])
    world.gateway.reply(text="done")
    events = world.events(cwd=str(world.home), approval="yolo")
    assert events[-1].outcome == "success", events[-1].failure
    assert notices(events) == []
    assert repository.left == {"users-hook"}
    assert "USERS_VARIABLE=users-value" in (world.home / "seen.txt").read_text()
    assert "USERS-SKILL" in said_to_the_model(world)


@deep
def test_a_folder_below_the_users_home(repository: Repository) -> None:
    """There the home's files are the user's, and the folder's are the repository's."""
    world = repository.world
    _users(repository, **_hook(repository, "mine", "users-hook"))
    world.home.joinpath("work").symlink_to(repository.cwd)
    inner = world.home / "project"
    inner.mkdir()
    repository.plant("hooks", "server")
    (repository.cwd / ".gemini").rename(inner / ".gemini")
    world.gateway.reply(text="hi")
    events = world.events(cwd=str(inner))
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == {"users-hook"}
    assert notices(events) != []


@deep
@pytest.mark.parametrize("what", ["cwd", ".gemini", "settings.json"])
def test_what_is_reached_by_a_link(repository: Repository, what: str) -> None:
    """A folder given by a link, and settings that are one, have no more power than others."""
    world = repository.plant("hooks", "server").world
    cwd = repository.cwd
    if what == "cwd":
        (world.root / "by-link").symlink_to(cwd)
        cwd = world.root / "by-link"
    else:
        file = cwd / ".gemini" / ("" if what == ".gemini" else what)
        file.rename(repository.outside / "moved")
        file.symlink_to(repository.outside / "moved")
    world.gateway.reply(text="hi")
    events = world.events(cwd=str(cwd))
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == set()
    assert any("SessionStart" in told for told in notices(events))
    world.gateway.reply(text="hi")
    assert world.ask(cwd=str(cwd), trust_workspace=True).ok
    assert repository.left == {"SessionStart", "evil"}
