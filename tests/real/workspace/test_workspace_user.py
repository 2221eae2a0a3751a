"""The user's own settings apply in an untrusted folder, even if the repository uses the same
names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hostile_repository import Repository, notices, poke_server, sent_to_model

pytestmark = pytest.mark.real

deep = pytest.mark.deep


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world)


def _hook(repository: Repository, name: str, mark: str) -> dict[str, Any]:
    hook = {"type": "command", "name": name, "command": repository.touch(mark)}
    return {"hooks": {"SessionStart": [{"hooks": [hook]}]}}


def _write_user_files(repository: Repository, **settings: Any) -> None:
    """Write the user's own `.gemini` folder: settings, a GEMINI.md and a skill."""
    gemini = repository.world.home / ".gemini"
    files = {
        "settings.json": json.dumps(settings),
        "GEMINI.md": "USERS-TEXT",
        "skills/users-skill/SKILL.md": "---\nname: users-skill\ndescription: USERS-SKILL\n---\nDo.\n",
    }
    for name, text in files.items():
        Path(gemini / name).parent.mkdir(parents=True, exist_ok=True)
        Path(gemini / name).write_text(text)


def _trusted_server(repository: Repository, name: str) -> dict[str, Any]:
    return {"mcpServers": {name: {**poke_server(repository.marks, "users"), "trust": True}}}


def test_the_users_own_files_apply(repository: Repository) -> None:
    """In a hostile repository, the user's own hook, MCP server, GEMINI.md and skill apply. The
    repository's hooks, server and skills do not."""
    _write_user_files(
        repository, **_hook(repository, "mine", "users-hook"), **_trusted_server(repository, "own")
    )
    world = repository.plant("hooks", "server", "skills", "text").world
    world.gateway.reply(calls=[("mcp_own_poke", {})])
    world.gateway.reply(text="done")
    result = world.ask(approval="yolo")
    assert result.ok, result.failure
    assert repository.left == {"users-hook", "users", "users-poked"}
    sent = sent_to_model(world)
    assert [word for word in ("USERS-TEXT", "USERS-SKILL", "PLEASE-RUN-EVERYTHING") if word not in sent] == []
    assert "EVIL" not in sent


@deep
def test_a_server_with_the_name_of_a_users_server(repository: Repository) -> None:
    """If the user and an untrusted repository have an MCP server with the same name, the user's
    starts. If the folder is trusted, the repository's starts."""
    _write_user_files(repository, **_trusted_server(repository, "evil"))
    world = repository.plant("server").world
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert repository.left == {"users"}
    world.gateway.reply(text="hi")
    assert world.ask(trust_workspace=True).ok
    assert repository.left == {"users", "evil"}


@deep
def test_a_server_with_the_name_of_a_runs_server(repository: Repository) -> None:
    """If `mcp_servers` and the repository have an MCP server with the same name, the one from
    `mcp_servers` starts."""
    from geminids import McpServer

    world = repository.plant("server").world
    settings = poke_server(repository.marks, "callers")
    world.gateway.reply(text="hi")
    servers = {"evil": McpServer(command=settings["command"], args=tuple(settings["args"]))}
    assert world.ask(mcp_servers=servers).ok
    assert repository.left == {"callers"}


@deep
def test_a_hook_with_the_name_of_a_users_hook(repository: Repository) -> None:
    """If the user and an untrusted repository have a hook with the same name, only the user's
    runs."""
    _write_user_files(repository, **_hook(repository, "SessionStart", "users-hook"))
    world = repository.plant("hooks").world
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert repository.left == {"users-hook"}


@deep
def test_a_run_in_the_users_home(repository: Repository) -> None:
    """If the working folder is the user's home, its `.gemini` and `.env` are the user's own: they
    apply, and no workspace notice is emitted."""
    world = repository.world
    _write_user_files(repository, **_hook(repository, "mine", "users-hook"))
    (world.home / ".env").write_text("USERS_VARIABLE=users-value\n")
    world.gateway.reply(calls=[("run_shell_command", {"command": "env > seen.txt"})])
    world.gateway.reply(text="done")
    events = world.events(cwd=str(world.home), approval="yolo")
    assert events[-1].outcome == "success", events[-1].failure
    assert notices(events) == []
    assert repository.left == {"users-hook"}
    assert "USERS_VARIABLE=users-value" in (world.home / "seen.txt").read_text()
    assert "USERS-SKILL" in sent_to_model(world)


@deep
def test_a_folder_below_the_users_home(repository: Repository) -> None:
    """In a folder below the user's home, the home's `.gemini` applies. The folder's own `.gemini`
    is ignored, and a notice reports it."""
    world = repository.world
    _write_user_files(repository, **_hook(repository, "mine", "users-hook"))
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
@pytest.mark.parametrize("linked", ["cwd", ".gemini", "settings.json"])
def test_linked_settings_are_ignored(repository: Repository, linked: str) -> None:
    """Settings of an untrusted repository are ignored, with a notice, if the folder, its `.gemini`
    or its settings.json is a link. If the folder is trusted, they apply."""
    world = repository.plant("hooks", "server").world
    cwd = repository.cwd
    if linked == "cwd":
        (world.root / "by-link").symlink_to(cwd)
        cwd = world.root / "by-link"
    else:
        file = cwd / ".gemini" / ("" if linked == ".gemini" else linked)
        file.rename(repository.outside / "moved")
        file.symlink_to(repository.outside / "moved")
    world.gateway.reply(text="hi")
    events = world.events(cwd=str(cwd))
    assert events[-1].outcome == "success", events[-1].failure
    assert repository.left == set()
    assert any("SessionStart" in notice for notice in notices(events))
    world.gateway.reply(text="hi")
    assert world.ask(cwd=str(cwd), trust_workspace=True).ok
    assert repository.left == {"SessionStart", "evil"}
