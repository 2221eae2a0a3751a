"""How the CLI is brought to pass over what lies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids.gemini import release_of
from geminids.launch.errors import WorkspaceProblem
from geminids.launch.workspace import Workspace, WorkspaceOverrides, ignore_workspace, read_workspace

NEWEST, OLDEST = "0.61.0", "0.54.4"


def _seen(tmp_path: Path, settings: str = "{}", **files: str) -> Workspace:
    folder = tmp_path / "repo"
    (folder / ".gemini").mkdir(parents=True)
    (folder / ".gemini/settings.json").write_text(settings)
    for name, text in files.items():
        (folder / {"env": ".env", "gemini_env": ".gemini/.env"}[name]).write_text(text)
    return read_workspace(str(folder), tmp_path / "home")


def _held(seen: Workspace, version: str, users: Any = None, **environ: str) -> WorkspaceOverrides:
    return ignore_workspace(seen, release_of(version), users or {}, environ)


@pytest.mark.parametrize("version", [OLDEST, NEWEST, "0.99.0"])
def test_the_cli_reads_the_settings_of_an_untrusted_folder(tmp_path: Path, version: str) -> None:
    """Untrusted while settings are read, trusted after it, and no word of anybody's that says otherwise."""
    held = _held(_seen(tmp_path, '{"tools": {"allowed": ["x"]}}'), version)
    assert held.flags == ("--skip-trust",)
    assert held.settings["security"] == {"folderTrust": {"enabled": True}}
    assert held.drop == ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")
    assert "tools" not in held.settings


def test_variables_of_env_files(tmp_path: Path) -> None:
    """A variable that is set is not overwritten: those that the CLI would read are set to nothing if they are unset.

    From 0.61 on that is a `.gemini/.env` (and, to be sure, what signs in); before, all of them.
    """
    seen = _seen(tmp_path, env="DATABASE_URL=x\nGEMINI_API_KEY=x\nPATH=x\n", gemini_env="NODE_OPTIONS=x\n")
    assert set(_held(seen, NEWEST).blank) == {"NODE_OPTIONS", "GEMINI_API_KEY"}
    assert set(_held(seen, OLDEST).blank) == {"NODE_OPTIONS", "DATABASE_URL", "GEMINI_API_KEY", "PATH"}


def test_settings_that_want_the_env_file_back(tmp_path: Path) -> None:
    """`ignoreLocalEnv` in the repository's settings makes all of its variables suspect."""
    seen = _seen(tmp_path, '{"advanced": {"ignoreLocalEnv": false}}', env="DATABASE_URL=x\n")
    assert _held(seen, NEWEST).blank == ("DATABASE_URL",)


def test_cloud_shell_follows_the_file(tmp_path: Path) -> None:
    """There a project in a `.env` beats the environment: no run."""
    seen = _seen(tmp_path, env="GOOGLE_CLOUD_PROJECT=evil\n")
    assert _held(seen, NEWEST).blank == ("GOOGLE_CLOUD_PROJECT",)
    with pytest.raises(WorkspaceProblem, match="Cloud Shell"):
        _held(seen, NEWEST, CLOUD_SHELL="true", GOOGLE_CLOUD_PROJECT="mine")
