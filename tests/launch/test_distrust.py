"""How each kind of release is brought to pass over what lies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids.launch.distrust import Distrust, distrust
from geminids.launch.workspace import Workspace, WorkspaceProblem, look_at
from geminids.toolchain import release_of

NEWEST, UNTRUSTED, PRIVATE, OLDEST = "0.61.0", "0.41.2", "0.32.1", "0.24.0"


def _seen(tmp_path: Path, settings: str = "{}", **files: str) -> Workspace:
    folder = tmp_path / "repo"
    (folder / ".gemini").mkdir(parents=True)
    (folder / ".gemini/settings.json").write_text(settings)
    for name, text in files.items():
        (folder / {"env": ".env", "gemini_env": ".gemini/.env"}[name]).write_text(text)
    return look_at(str(folder), tmp_path / "home")


def _held(seen: Workspace, version: str, users: Any = None, **environ: str) -> Distrust:
    return distrust(seen, release_of(version), users or {}, environ)


@pytest.mark.parametrize("version", ["0.39.1", UNTRUSTED, NEWEST, "0.99.0"])
def test_new_releases_read_the_settings_of_an_untrusted_folder(tmp_path: Path, version: str) -> None:
    """Untrusted while settings are read, trusted after it, and no word of anybody's that says otherwise."""
    held = _held(_seen(tmp_path, '{"tools": {"allowed": ["x"]}}'), version)
    assert held.flags == ("--skip-trust",)
    assert held.settings["security"] == {"folderTrust": {"enabled": True}}
    assert held.drop == ("GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH")
    assert not held.system
    assert "tools" not in held.settings


@pytest.mark.parametrize("version", ["0.39.0", PRIVATE, OLDEST, "0.11.3"])
def test_old_releases_are_outranked(tmp_path: Path, version: str) -> None:
    """What the repository sets is set back by system settings: to the user's word, or to what it is without one."""
    seen = _seen(tmp_path, '{"tools": {"allowed": ["x"], "exclude": ["y"]}, "model": {"maxSessionTurns": 1}}')
    held = _held(seen, version, {"model": {"maxSessionTurns": 7}})
    assert held.system
    assert held.settings == {"tools": {"allowed": []}, "model": {"maxSessionTurns": 7}}
    assert held.flags == ()


@pytest.mark.parametrize(
    "settings",
    [
        '{"allowedTools": ["run_shell_command"]}',
        '{"coreTools": ["x"]}',
        '{"toolDiscoveryCommand": "x"}',
        '{"mcpServerCommand": "x"}',
        '{"autoAccept": true}',
        '{"__proto__": {"x": 1}}',
        '{"hooks": {"disabled": ["guard"]}}',
        '{"hooksConfig": {"disabled": ["guard"]}}',
        '{"security": {"auth": {"selectedType": "x"}}}',
        '{"modelConfigs": {"overrides": []}}',
        '{"tools": "x"}',
        '{"context": {"includeDirectories": ["/"]}}',
        '{"mcpServers": "x"}',
        '{"hooks": []}',
    ],
)
def test_what_cannot_be_outranked_is_refused(tmp_path: Path, settings: str) -> None:
    """Flat keys of old, switches of hooks, and all that nobody has thought of: an old release would follow them."""
    seen = _seen(tmp_path, settings)
    with pytest.raises(WorkspaceProblem) as caught:
        _held(seen, OLDEST)
    assert "trust_workspace" in caught.value.hint
    assert _held(seen, NEWEST).flags == ("--skip-trust",), "a new release does not read it at all"


@pytest.mark.parametrize(
    "settings",
    [
        '{"ui": {"theme": "x"}}',
        '{"tools": {}}',
        '{"$schema": "x"}',
        '{"tools": {"exclude": ["x"]}}',
        "",
        "{}",
    ],
)
def test_what_gives_nothing_needs_nothing(tmp_path: Path, settings: str) -> None:
    """Settings that give no power, or take it away, are left as they are."""
    assert not _held(_seen(tmp_path, settings), OLDEST).system


_HOOKS = '{"hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "x"%s}]}]}}'


def test_hooks_of_old_releases_are_disabled_by_name(tmp_path: Path) -> None:
    """By their own name or by their command; one that is named as a hook of the user's cannot be told from it."""
    named = _seen(tmp_path, _HOOKS % ', "name": "n"')
    assert _held(named, OLDEST).settings["hooks"] == {"disabled": ["n"]}
    users = {"hooks": {"AfterTool": [{"hooks": [{"type": "command", "command": "y", "name": "n"}]}]}}
    with pytest.raises(WorkspaceProblem, match="cannot be told"):
        _held(named, OLDEST, users)
    plain = _seen(tmp_path / "plain", _HOOKS % "")
    assert _held(plain, PRIVATE).settings["hooksConfig"] == {"disabled": ["x"]}


def test_servers_of_old_releases_are_excluded(tmp_path: Path) -> None:
    """A stranger is excluded; a namesake of the user's is put back to the user's."""
    seen = _seen(tmp_path, '{"mcpServers": {"a": {"command": "evil"}, "b": {"command": "evil"}}}')
    users = {"mcpServers": {"a": {"command": "mine"}}, "mcp": {"excluded": ["c"]}}
    held = _held(seen, OLDEST, users)
    assert held.settings == {"mcpServers": {"a": {"command": "mine"}}, "mcp": {"excluded": ["c", "b"]}}


def test_variables_of_env_files(tmp_path: Path) -> None:
    """A variable that is there is not overwritten: those are set, and empty, that the CLI would read.

    From 0.61 on that is a `.gemini/.env` (and, to be sure, what signs in); before, all of them.
    """
    seen = _seen(tmp_path, env="DATABASE_URL=x\nGEMINI_API_KEY=x\nPATH=x\n", gemini_env="NODE_OPTIONS=x\n")
    assert _held(seen, NEWEST, PATH="/bin").env == {"NODE_OPTIONS": "", "GEMINI_API_KEY": ""}
    for version in (UNTRUSTED, PRIVATE, OLDEST):
        blank = {"NODE_OPTIONS": "", "DATABASE_URL": "", "GEMINI_API_KEY": ""}
        assert _held(seen, version, PATH="/bin").env == blank


def test_settings_that_want_the_env_file_back(tmp_path: Path) -> None:
    """`ignoreLocalEnv` in the repository's settings makes all of its variables suspect."""
    seen = _seen(tmp_path, '{"advanced": {"ignoreLocalEnv": false}}', env="DATABASE_URL=x\n")
    assert _held(seen, NEWEST).env == {"DATABASE_URL": ""}


def test_cloud_shell_follows_the_file(tmp_path: Path) -> None:
    """There a project in a `.env` beats the environment: no run."""
    seen = _seen(tmp_path, env="GOOGLE_CLOUD_PROJECT=evil\n")
    assert _held(seen, NEWEST).env == {"GOOGLE_CLOUD_PROJECT": ""}
    with pytest.raises(WorkspaceProblem, match="Cloud Shell"):
        _held(seen, NEWEST, CLOUD_SHELL="true", GOOGLE_CLOUD_PROJECT="mine")
