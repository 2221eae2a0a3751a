"""Tests of `ignore_workspace`: the flags, settings and variables that make the CLI ignore an
untrusted folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids.gemini import release_of
from geminids.launch.errors import WorkspaceProblem
from geminids.launch.workspace import Workspace, WorkspaceOverrides, ignore_workspace, read_workspace

NEWEST, OLDEST = "0.61.0", "0.54.4"


def _workspace(tmp_path: Path, settings: str = "{}", **files: str) -> Workspace:
    folder = tmp_path / "repo"
    (folder / ".gemini").mkdir(parents=True)
    (folder / ".gemini/settings.json").write_text(settings)
    for name, text in files.items():
        (folder / {"env": ".env", "gemini_env": ".gemini/.env"}[name]).write_text(text)
    return read_workspace(str(folder), tmp_path / "home")


def _overrides(
    workspace: Workspace, version: str, user_settings: Any = None, **environ: str
) -> WorkspaceOverrides:
    return ignore_workspace(workspace, release_of(version), user_settings or {}, environ)


@pytest.mark.parametrize("version", [OLDEST, NEWEST, "0.99.0"])
def test_the_folder_is_untrusted(tmp_path: Path, version: str) -> None:
    """The CLI starts with `--skip-trust` and folder trust enabled, and variables that would trust
    the folder are removed."""
    overrides = _overrides(_workspace(tmp_path, '{"tools": {"allowed": ["x"]}}'), version)
    assert overrides.flags == ("--skip-trust",)
    assert overrides.settings["security"] == {"folderTrust": {"enabled": True}}
    assert overrides.drop == ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")
    assert "tools" not in overrides.settings


def test_variables_of_env_files_are_blank(tmp_path: Path) -> None:
    """Variables that the CLI would read from the folder's env files are set to empty, because the
    CLI does not overwrite a set variable. From 0.61 on these are the variables of `.gemini/.env`
    and of the sign-in; before, all of them."""
    workspace = _workspace(
        tmp_path, env="DATABASE_URL=x\nGEMINI_API_KEY=x\nPATH=x\n", gemini_env="NODE_OPTIONS=x\n"
    )
    assert set(_overrides(workspace, NEWEST).blank) == {"NODE_OPTIONS", "GEMINI_API_KEY"}
    assert set(_overrides(workspace, OLDEST).blank) == {
        "NODE_OPTIONS",
        "DATABASE_URL",
        "GEMINI_API_KEY",
        "PATH",
    }


def test_ignore_local_env_blanks_all_variables(tmp_path: Path) -> None:
    """If the repository's settings contain `ignoreLocalEnv`, all variables of its env files are set
    to empty."""
    workspace = _workspace(tmp_path, '{"advanced": {"ignoreLocalEnv": false}}', env="DATABASE_URL=x\n")
    assert _overrides(workspace, NEWEST).blank == ("DATABASE_URL",)


def test_a_project_in_cloud_shell_is_refused(tmp_path: Path) -> None:
    """In Cloud Shell a project in a `.env` overrides the environment, so the run is refused."""
    workspace = _workspace(tmp_path, env="GOOGLE_CLOUD_PROJECT=evil\n")
    assert _overrides(workspace, NEWEST).blank == ("GOOGLE_CLOUD_PROJECT",)
    with pytest.raises(WorkspaceProblem, match="Cloud Shell"):
        _overrides(workspace, NEWEST, CLOUD_SHELL="true", GOOGLE_CLOUD_PROJECT="mine")
