"""Tests of `read_workspace`: it finds what a folder contains for the CLI, by reading only."""

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


def _read(folder: Path, **arguments: Any) -> Workspace:
    return read_workspace(str(folder), folder.parent / "home", **arguments)


def _settings(folder: Path, settings: Any) -> None:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (folder / ".gemini/settings.json").write_text(text)


def _item_names(folder: Path) -> set[str]:
    return {f"{item.kind} {item.name}".strip() for item in _read(folder).items}


def _refusal(folder: Path) -> WorkspaceProblem:
    start = time.monotonic()
    with pytest.raises(WorkspaceProblem) as caught:
        _read(folder)
    assert time.monotonic() - start < 5
    assert str(folder) in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_an_empty_folder_has_nothing(folder: Path) -> None:
    """An empty folder, a missing folder and a file have no items."""
    assert _read(folder).items == ()
    assert _read(folder / "not made yet").items == ()
    (folder / "a file").touch()
    assert _read(folder / "a file").items == ()


def test_each_setting_is_reported_by_its_full_name(folder: Path) -> None:
    """Hooks and servers are reported by name, other settings by their path.

    Comments, a byte order mark and repeated keys are understood.
    """
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
    assert _item_names(folder) == {
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
def test_settings_of_the_wrong_type(folder: Path, settings: Any) -> None:
    """Settings with values of the wrong type are reported as items and do not raise."""
    _settings(folder, settings)
    assert all(isinstance(item, WorkspaceItem) for item in _read(folder).items)


@pytest.mark.parametrize(
    "text", ["{nonsense", "[]", "3", '{"a": 1,}', "[" * 100_000, '{"a":' * 100_000, "\0", '"x"']
)
def test_invalid_settings_are_refused(folder: Path, text: str) -> None:
    """Invalid settings are refused before the start, because the CLI would end with exit code
    52."""
    _settings(folder, text)
    _refusal(folder)


def test_deep_settings(folder: Path) -> None:
    """Settings with 400 nested levels are read, despite Python's recursion limit."""
    _settings(folder, '{"a":' * 400 + "1" + "}" * 400)
    [item] = _read(folder).items
    assert item.name == ".".join("a" * 400)


@pytest.mark.parametrize("name", [".gemini/settings.json", ".env", ".gemini/.env"])
def test_special_files_are_refused(folder: Path, name: str) -> None:
    """A FIFO, a device and a file of 50 MiB are refused without reading them.

    A folder named `.env` is ignored.
    """
    file = folder / name
    os.mkfifo(file)
    assert "not a regular file" in str(_refusal(folder))
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "not a regular file" in str(_refusal(folder))
    file.unlink()
    file.mkdir()
    if file.name == ".env":
        assert _read(folder).env_names == ()  # it may be a virtual environment
    else:
        assert "not a regular file" in str(_refusal(folder))
    file.rmdir()
    with file.open("wb") as big:
        big.truncate(50 * 1024 * 1024)
    assert "52,428,800 bytes" in str(_refusal(folder))


def test_a_huge_env_file_is_refused(folder: Path) -> None:
    """An env file with more than 1,000 variables is refused, and the message names it."""
    (folder / ".env").write_text("".join(f"V{n}=1\n" for n in range(5000)))
    assert ".env has more than 1,000 variables" in str(_refusal(folder))


def test_env_files_up_to_the_root(folder: Path) -> None:
    """`.env` and `.gemini/.env` are found in the folder and its parents, with their variable names.

    Those of `.gemini/.env` are also listed apart.
    """
    inner = folder / "a"
    inner.mkdir()
    (inner / ".env").write_text("A=1\nGEMINI_API_KEY=k\n")
    (folder / ".gemini/.env").write_text("B=2\n")
    (folder.parent / ".env").write_text("C=3\n")
    workspace = _read(inner)
    files = {item.file for item in workspace.items if item.kind == "env file"}
    assert {".env", str(folder / ".gemini/.env"), str(folder.parent / ".env")} <= files
    assert {"A", "B", "C", "GEMINI_API_KEY"} <= set(workspace.env_names)
    assert "B" in workspace.gemini_env_names
    assert not {"A", "C"} & set(workspace.gemini_env_names)


def test_the_users_home_has_no_items(tmp_path: Path) -> None:
    """If the folder is the user's home, also through a link, nothing of it is reported.

    A folder inside the home has its own items.
    """
    home = tmp_path / "home"
    (home / ".gemini/commands").mkdir(parents=True)
    (home / ".gemini/settings.json").write_text('{"tools": {"allowed": ["x"]}}')
    (home / ".env").write_text("A=1")
    (home / ".gemini/.env").write_text("A=1")
    (tmp_path / "link").symlink_to(home)
    (home / "repo").mkdir()
    (home / "repo/.env").write_text("B=1")
    for cwd in (home, tmp_path / "link"):
        assert [item for item in read_workspace(str(cwd), home).items if str(tmp_path) in item.file] == []
    assert "B" in read_workspace(str(home / "repo"), home).env_names
    assert "A" not in read_workspace(str(home / "repo"), home).env_names


def test_all_other_items_are_reported(folder: Path) -> None:
    """Agents, commands with subfolders and links, extensions, policies, a system prompt and given
    skills are reported."""
    for name in ("agents/a.md", "agents/b.toml", "agents/c.txt", "commands/git/commit.toml", "commands/x.toml",
                 "commands/y.md", "extensions/e/x.json", "policies/p.toml", "system.md"):  # fmt: skip
        (folder / ".gemini" / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / ".gemini" / name).touch()
    (folder / "more").mkdir()
    (folder / "more/z.toml").touch()
    (folder / ".gemini/commands/more").symlink_to(folder / "more")
    skill = WorkspaceItem("skill", "s", ".gemini/skills/s")
    workspace = _read(folder, skills=(skill,))
    assert workspace.commands == ("git:commit", "more:z", "x")
    assert workspace.skills == ("s",)
    items = [str(item) for item in workspace.items]
    assert "skill s (.gemini/skills/s)" in items
    assert "command /git:commit (.gemini/commands)" in items
    assert "extension e (.gemini/extensions)" in items
    assert "policy p.toml (.gemini/policies)" in items
    assert "system prompt (.gemini/system.md)" in items


def test_a_huge_commands_folder_is_refused(folder: Path) -> None:
    """A commands folder that links to a huge tree is refused quickly."""
    (folder / ".gemini/commands").symlink_to("/usr")
    assert "more than" in str(_refusal(folder))


def test_a_gemini_folder_that_is_no_folder(folder: Path) -> None:
    """A `.gemini` that is a file or a broken link has no items."""
    (folder / ".gemini").rmdir()
    (folder / ".gemini").touch()
    assert _read(folder).items == ()
    (folder / ".gemini").unlink()
    (folder / ".gemini").symlink_to("nowhere")
    assert _read(folder).items == ()
