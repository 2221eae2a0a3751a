"""`geminids config` as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids.options.flags import fields


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """A function that calls `geminids config …` with its own home and in its own repository."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    env = {
        **{name: value for name, value in os.environ.items() if name != "GEMINIDS_CONFIG"},
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "",
        "GEMINIDS_HOME": str(tmp_path / "geminids"),
    }

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "geminids", "config", *words]
        return subprocess.run(
            argv, env={**env, **more}, cwd=tmp_path / "repo", capture_output=True, text=True, timeout=60
        )

    return call


def test_set_get_list_unset(config: Any, tmp_path: Path) -> None:
    """`get` and `list` show a value after `set`, with its origin. After `unset` it is gone."""
    done = config("set", "gemini.model", "gemini-2.5-pro")
    assert (done.returncode, done.stdout) == (0, "")
    file = tmp_path.resolve() / ".config" / "geminids" / "config.toml"
    assert file.read_text() == '[gemini]\nmodel = "gemini-2.5-pro"\n'
    assert config("get", "model").stdout == "gemini-2.5-pro\n"
    shown = json.loads(config("get", "gemini.model", "--json").stdout)
    assert shown == {"name": "gemini.model", "value": "gemini-2.5-pro", "origin": f"user {file}:2"}
    rows = {row["name"]: row for row in json.loads(config("list", "--json").stdout)}
    assert list(rows) == [f"gemini.{field.name}" for field in fields()]
    assert rows["gemini.idle_timeout"] == {"name": "gemini.idle_timeout", "value": 600.0, "origin": "default"}
    assert config("get", "model", GEMINIDS_MODEL="pro").stdout == "pro\n"
    assert config("unset", "model").returncode == 0
    assert config("unset", "model").returncode == 1
    done = config("get", "model")
    assert (done.returncode, done.stdout) == (1, "")
    assert config("get", "grace").stdout == "5.0\n"


def test_secrets_are_not_shown(config: Any) -> None:
    """`list` and `get` mask secrets and show other variables."""
    config("set", "env.MY_TOKEN", "hunter2hunter2")
    config("set", "env.PLAIN", "seen")
    config("set", "mcp_servers.w", '{url = "http://u:hunter2@127.0.0.1/", headers = {X = "hunter2hunter2"}}')
    for words in (
        ("list",),
        ("list", "--json"),
        ("get", "env"),
        ("get", "env.MY_TOKEN"),
        ("get", "mcp_servers"),
    ):
        done = config(*words)
        assert done.returncode == 0
        assert "hunter2" not in done.stdout + done.stderr
        assert "***" in done.stdout
    assert config("get", "env.PLAIN").stdout == "seen\n"


def test_trust_applies_the_settings_of_a_project(config: Any, tmp_path: Path) -> None:
    """`set --project` warns about a setting that needs a trusted project.

    `trust` makes it apply, and `untrust` ignores it again.
    """
    done = config("set", "approval", "yolo", "--project")
    assert "ignored approval (line" in done.stderr and "config trust" in done.stderr
    assert (tmp_path / "repo" / "geminids.toml").read_text() == '[gemini]\napproval = "yolo"\n'
    assert config("get", "approval").stdout == "default\n"
    assert config("trust").returncode == 0
    assert config("get", "approval").stdout == "yolo\n"
    assert config("untrust", str(tmp_path / "repo")).returncode == 0
    assert config("untrust").returncode == 1
    assert config("get", "approval").stdout == "default\n"
    assert config("trust", "absent").returncode == 2


def test_paths_are_shown(config: Any, tmp_path: Path) -> None:
    """`path` shows the user file and the project file, also if they do not exist."""
    user = str(tmp_path.resolve() / ".config" / "geminids" / "config.toml")
    assert json.loads(config("path", "--json").stdout) == {"user": user, "project": None}
    assert "(absent)" in config("path").stdout


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (("get", "modle"), 2, "did you mean model?"),
        (("set", "gemini.timeout", "soon"), 2, "not a number"),
        (("set", "gemini.permissions.shel", "deny"), 2, "permissions.shell"),
        (("unset", "env"), 1, "env is not set in "),
    ],
)
def test_mistakes_get_one_clear_line(
    config: Any, tmp_path: Path, words: tuple[str, ...], exit_code: int, message: str
) -> None:
    """A wrong name or value exits with 2 and a clear message; `unset` of a missing value exits with
    1.

    There is no traceback, and nothing is written.
    """
    done = config(*words)
    assert done.returncode == exit_code
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".config").exists()
