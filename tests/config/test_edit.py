"""Changes to a configuration file: validated first, comments kept, safe with several writers."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from geminids import OptionsError
from geminids.config import editor as edit

_TEXT = """\
# my own file

[gemini]  # the section
timeout = 60  # a minute
model = "pro"

# servers
[gemini.mcp_servers.fs]
command = "npx"
"""


@pytest.fixture(autouse=True)
def separate_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lock files of the editor in a folder of the test."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))


def test_comments_and_order_are_kept(tmp_path: Path) -> None:
    """Setting a value changes only that value; comments and order stay."""
    file = tmp_path / "config.toml"
    file.write_text(_TEXT)
    edit.set_value(str(file), "gemini.model", "flash", private=True)
    assert file.read_text() == _TEXT.replace('"pro"', '"flash"')
    edit.set_value(str(file), "gemini.model", "pro", private=True)
    assert file.read_text() == _TEXT


@pytest.mark.parametrize(
    ("name", "text", "stored"),
    [
        ("model", "flash", {"model": "flash"}),
        ("timeout", "2.5", {"timeout": 2.5}),
        ("idle_timeout", "none", {"idle_timeout": "none"}),
        ("max_turns", "3", {"max_turns": 3}),
        ("offline", "yes", {"offline": True}),
        ("gemini.permissions.shell", "deny", {"permissions": {"shell": "deny"}}),
        ("permissions.deny_tools", "a,b", {"permissions": {"deny_tools": ["a", "b"]}}),
        ("permissions.deny_commands", '["a,b"]', {"permissions": {"deny_commands": ["a,b"]}}),
        ("env.A", "1", {"env": {"A": "1"}}),
        ("variables.agent.name", "x", {"variables": {"agent.name": "x"}}),
        (
            "mcp_servers.x",
            '{command = "y", args = ["z"]}',
            {"mcp_servers": {"x": {"command": "y", "args": ["z"]}}},
        ),
        ("mcp_servers.x.url", "http://127.0.0.1/", {"mcp_servers": {"x": {"url": "http://127.0.0.1/"}}}),
        ("gemini.gemini", "0.61.0", {"gemini": "0.61.0"}),
    ],
)
def test_a_value_is_stored_with_its_type(
    tmp_path: Path, name: str, text: str, stored: dict[str, Any]
) -> None:
    """A value is stored with its TOML type, in a file with mode 0600 and a folder with mode 0700.

    `unset_value` removes it.
    """
    file = tmp_path / "new" / "config.toml"
    edit.set_value(str(file), name, text, private=True)
    assert tomllib.loads(file.read_text()) == {"gemini": stored}
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert edit.unset_value(str(file), name) is True
    assert edit.unset_value(str(file), name) is False
    assert tomllib.loads(file.read_text()) in ({"gemini": {}}, {})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("modle", "x", "did you mean model"),
        ("gemini.permissions.shel", "deny", "did you mean permissions.shell"),
        ("timeout", "soon", "not a number"),
        ("model", "", "is empty"),
        ("approval", "always", "not one of"),
        ("mcp_servers.x.comand", "y", "an MCP server has no field comand"),
        ("mcp_servers.x.args", '["y"]', "needs either a command or a url"),
        ("instructions", "absent.md", "does not exist"),
        ("env", "x", "NAME=VALUE"),
    ],
)
def test_an_invalid_value_is_not_written(tmp_path: Path, name: str, text: str, message: str) -> None:
    """An invalid name or value is an error, and no file is created."""
    file = tmp_path / "config.toml"
    with pytest.raises(OptionsError, match=message):
        edit.set_value(str(file), name, text, private=True)
    assert not file.exists()


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is meant from the current folder.

    The user's file stores it absolute, and a project file relative to its own folder.
    """
    (tmp_path / "repo" / "docs").mkdir(parents=True)
    (tmp_path / "repo" / "docs" / "a.md").touch()
    monkeypatch.chdir(tmp_path / "repo" / "docs")
    user, project = tmp_path / "config.toml", tmp_path / "repo" / "geminids.toml"
    edit.set_value(str(user), "instructions", "a.md", private=True)
    edit.set_value(str(project), "instructions", "a.md", private=False)
    assert tomllib.loads(user.read_text())["gemini"]["instructions"] == str(
        tmp_path / "repo" / "docs" / "a.md"
    )
    assert tomllib.loads(project.read_text())["gemini"]["instructions"] == "docs/a.md"


def test_a_broken_file_is_reported_and_not_changed(tmp_path: Path) -> None:
    """A file that is not valid TOML is reported with its line and not changed."""
    file = tmp_path / "config.toml"
    file.write_text("[gemini\n")
    with pytest.raises(OptionsError, match=r"config\.toml:1: is not valid TOML"):
        edit.set_value(str(file), "model", "x", private=True)
    assert file.read_text() == "[gemini\n"


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    """If the file is a link, the target is changed and the link stays."""
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "g.toml"
    real.write_text(_TEXT)
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    edit.set_value(str(link), "model", "flash", private=True)
    assert link.is_symlink() and '"flash"' in real.read_text()


def test_trust_and_untrust(tmp_path: Path) -> None:
    """`trust` stores the real path of a project once, and `untrust` removes it, also through a
    link.
    """
    file = tmp_path / "config.toml"
    file.write_text(_TEXT)
    (tmp_path / "repo").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "repo")
    assert [edit.trust(str(file), str(tmp_path / name)) for name in ("repo", "link")] == [True, False]
    assert tomllib.loads(file.read_text())["trusted_projects"] == [str((tmp_path / "repo").resolve())]
    assert all(line in file.read_text() for line in _TEXT.splitlines())
    assert [edit.untrust(str(file), str(tmp_path / name)) for name in ("link", "repo")] == [True, False]
    assert tomllib.loads(file.read_text())["trusted_projects"] == []


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    """Four processes that write at the same time lose no value."""
    file = tmp_path / "config.toml"
    program = (
        "import sys\nfrom geminids.config.editor import set_value\n"
        "for i in range(8): set_value(sys.argv[1], f'env.V{sys.argv[2]}_{i}', 'x', private=True)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(file), str(n)]) for n in range(4)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    assert len(tomllib.loads(file.read_text())["gemini"]["env"]) == 32
    assert os.listdir(tmp_path / "geminids") == ["locks"]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
