"""What lies in a folder is found by reading alone, whatever it is."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from geminids.launch.errors import WorkspaceProblem
from geminids.launch.workspace import Workspace, WorkspaceItem, read_workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".gemini").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return folder


def _seen(folder: Path, **how: Any) -> Workspace:
    return read_workspace(str(folder), folder.parent / "home", **how)


def _settings(folder: Path, settings: Any) -> None:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (folder / ".gemini/settings.json").write_text(text)


def _found(folder: Path) -> set[str]:
    return {f"{found.kind} {found.name}".strip() for found in _seen(folder).items}


def _refused(folder: Path) -> WorkspaceProblem:
    begin = time.monotonic()
    with pytest.raises(WorkspaceProblem) as caught:
        _seen(folder)
    assert time.monotonic() - begin < 5
    assert str(folder) in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_an_empty_folder_has_nothing(folder: Path) -> None:
    """And a folder that is not there yet neither."""
    assert _seen(folder).items == ()
    assert _seen(folder / "not made yet").items == ()
    (folder / "a file").touch()
    assert _seen(folder / "a file").items == ()


def test_settings_are_told_leaf_by_leaf(folder: Path) -> None:
    """Hooks and servers by name, the rest by its path; comments, a BOM and a second key are read as the CLI does."""
    hook = {"type": "command", "command": "true"}
    _settings(
        folder,
        "\ufeff// mine\n"
        + json.dumps(
            {
                "$schema": "x",
                "hooks": {"BeforeTool": [{"hooks": [hook, {**hook, "name": "n"}]}], "disabled": ["guard"]},
                "mcpServers": {"s": {"command": "x"}},
                "tools": {"allowed": ["x"], "core": {}},
                "__proto__": {"polluted": True},
                "allowedTools": ["old"],
            }
        )[:-1]
        + ', "model": {"name": "a"}, /* twice */ "model": {"maxSessionTurns": 1}}',
    )
    assert _found(folder) == {
        "hook BeforeTool true",
        "hook BeforeTool n",
        "setting hooks.disabled",
        "MCP server s",
        "setting tools.allowed",
        "setting __proto__.polluted",
        "setting allowedTools",
        "setting model.maxSessionTurns",
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"hooks": "x", "mcpServers": 3},
        {"hooks": {"BeforeTool": {"hooks": 1}, "AfterTool": [1, {"hooks": "x"}, {"hooks": [2, None]}]}},
        {"mcpServers": ["x"], "hooks": [{"hooks": []}]},
    ],
)
def test_settings_of_the_wrong_kind(folder: Path, settings: Any) -> None:
    """Nothing raises, and what stands where something else belongs is told as a setting."""
    _settings(folder, settings)
    assert all(isinstance(found, WorkspaceItem) for found in _seen(folder).items)


@pytest.mark.parametrize(
    "text", ["{nonsense", "[]", "3", '{"a": 1,}', "[" * 100_000, '{"a":' * 100_000, "\0", '"x"']
)
def test_settings_that_cannot_be_read(folder: Path, text: str) -> None:
    """The CLI would end with exit 52: told here, before anything is started."""
    _settings(folder, text)
    _refused(folder)


def test_deep_settings(folder: Path) -> None:
    """Deep, but readable: no limit of Python's shows."""
    _settings(folder, '{"a":' * 400 + "1" + "}" * 400)
    [found] = _seen(folder).items
    assert found.name == ".".join("a" * 400)


@pytest.mark.parametrize("name", [".gemini/settings.json", ".env", ".gemini/.env"])
def test_what_is_no_regular_file(folder: Path, name: str) -> None:
    """A FIFO and a device are not waited for, nor is a file of 50 MB read; nor can settings be a folder."""
    file = folder / name
    os.mkfifo(file)
    assert "not a regular file" in str(_refused(folder))
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "not a regular file" in str(_refused(folder))
    file.unlink()
    file.mkdir()
    if file.name == ".env":
        assert _seen(folder).env_names == ()  # a virtual environment of that name is no harm
    else:
        assert "not a regular file" in str(_refused(folder))
    file.rmdir()
    with file.open("wb") as big:
        big.truncate(50 * 1024 * 1024)
    assert "52,428,800 bytes" in str(_refused(folder))


def test_an_env_file_of_thousands(folder: Path) -> None:
    """More variables than a system takes are refused, and the file is named."""
    (folder / ".env").write_text("".join(f"V{n}=1\n" for n in range(5000)))
    assert ".env has more than 1,000 variables" in str(_refused(folder))


def test_env_files_up_to_the_root(folder: Path) -> None:
    """In the folder and above it, `.gemini/.env` and `.env`; their names, and which stand in a `.gemini/.env`."""
    inner = folder / "a"
    inner.mkdir()
    (inner / ".env").write_text("A=1\nGEMINI_API_KEY=k\n")
    (folder / ".gemini/.env").write_text("B=2\n")
    (folder.parent / ".env").write_text("C=3\n")
    seen = _seen(inner)
    files = {found.file for found in seen.items if found.kind == "env file"}
    assert {".env", str(folder / ".gemini/.env"), str(folder.parent / ".env")} <= files
    assert {"A", "B", "C", "GEMINI_API_KEY"} <= set(seen.env_names)
    assert "B" in seen.gemini_env_names
    assert not {"A", "C"} & set(seen.gemini_env_names)


def test_the_home_is_the_users_own(tmp_path: Path) -> None:
    """Where the folder is the home, also by a link, nothing of it is told; a folder in it has its own."""
    home = tmp_path / "home"
    (home / ".gemini/commands").mkdir(parents=True)
    (home / ".gemini/settings.json").write_text('{"tools": {"allowed": ["x"]}}')
    (home / ".env").write_text("A=1")
    (home / ".gemini/.env").write_text("A=1")
    (tmp_path / "link").symlink_to(home)
    (home / "repo").mkdir()
    (home / "repo/.env").write_text("B=1")
    for cwd in (home, tmp_path / "link"):
        assert [found for found in read_workspace(str(cwd), home).items if str(tmp_path) in found.file] == []
    assert "B" in read_workspace(str(home / "repo"), home).env_names
    assert "A" not in read_workspace(str(home / "repo"), home).env_names


def test_all_else_that_can_lie_there(folder: Path) -> None:
    """Agents, commands with their folders and links, extensions, policies, a system prompt, and given skills."""
    for name in ("agents/a.md", "agents/b.toml", "agents/c.txt", "commands/git/commit.toml", "commands/x.toml",
                 "commands/y.md", "extensions/e/x.json", "policies/p.toml", "system.md"):  # fmt: skip
        (folder / ".gemini" / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / ".gemini" / name).touch()
    (folder / "more").mkdir()
    (folder / "more/z.toml").touch()
    (folder / ".gemini/commands/more").symlink_to(folder / "more")
    skill = WorkspaceItem("skill", "s", ".gemini/skills/s")
    seen = _seen(folder, skills=(skill,))
    assert seen.commands == ("git:commit", "more:z", "x")
    assert seen.skills == ("s",)
    told = [str(found) for found in seen.items]
    assert "skill s (.gemini/skills/s)" in told
    assert "command /git:commit (.gemini/commands)" in told
    assert "extension e (.gemini/extensions)" in told
    assert "policy p.toml (.gemini/policies)" in told
    assert "system prompt (.gemini/system.md)" in told


def test_commands_that_never_end(folder: Path) -> None:
    """A folder of commands that is a link to `/` does not hold up a start."""
    (folder / ".gemini/commands").symlink_to("/usr")
    assert "more than" in str(_refused(folder))


def test_a_gemini_folder_that_is_none(folder: Path) -> None:
    """`.gemini` as a file, or as a link to nowhere, holds nothing."""
    (folder / ".gemini").rmdir()
    (folder / ".gemini").touch()
    assert _seen(folder).items == ()
    (folder / ".gemini").unlink()
    (folder / ".gemini").symlink_to("nowhere")
    assert _seen(folder).items == ()
