"""agent-cli-sdk's interface: options of `execute`, and the capabilities of the installed CLI."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from geminids.adapters.agent_cli_sdk import PERMISSION_MODES, capabilities, execute, execute_sync
from geminids.config.paths import Places


def test_modes() -> None:
    """Claude's four modes are approval modes; any other is an error that names them, and nothing is run."""
    assert set(PERMISSION_MODES) == {"default", "plan", "acceptEdits", "bypassPermissions"}
    result = execute_sync("hello", permission_mode="yes")
    assert (result.success, result.exit_code) == (False, -1)
    assert "permission_mode: 'yes' is not one of default, plan, acceptEdits, bypassPermissions" in (
        result.error or ""
    )
    assert execute_sync("hello", permission_mode=["plan"]).exit_code == -1  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_bad_options_are_told() -> None:
    """Options that are wrong are a result, not an exception; so is a run that cannot begin."""
    result = await execute("hello", timeout=-1)
    assert not result.success
    assert "timeout" in (result.error or "")
    result = await execute("", permission_mode="plan")
    assert (result.success, result.messages) == (False, [])
    assert result.error == execute_sync("").error != ""


def _package(folder: Path, version: str) -> str:
    (folder / "bundle").mkdir(parents=True)
    (folder / "bundle" / "gemini.js").write_text("// nothing\n")
    manifest = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "bundle/gemini.js"}}
    (folder / "package.json").write_text(json.dumps(manifest))
    return str(folder)


@pytest.mark.parametrize(
    ("version", "knows", "knows_not"),
    [
        ("0.61.0", "gemini-3.8-flash", None),
        ("0.54.4", "gemini-3-flash-preview", "gemini-3.8-flash"),
    ],
)
def test_each_release_has_its_own(
    tmp_path: Path, node: Path, version: str, knows: str, knows_not: str | None
) -> None:
    """Models by release; the names are those of the other system."""
    package = _package(tmp_path / "cli", version)
    environ = {"HOME": str(tmp_path), "PATH": str(node.parent)}
    told = capabilities(package, environ=environ, places=Places(tmp_path / "g"))
    shown = msgspec.to_builtins(told)
    assert (shown["installed"], shown["supportsModels"], shown["supportsSlashCommands"]) == (
        True,
        True,
        False,
    )
    assert (shown["version"], shown["supportsThinking"]) == (version, True)
    assert shown["cliPath"].endswith("bundle/gemini.js")
    ids = {model["id"] for model in shown["models"]}
    assert knows in ids
    assert knows_not not in ids


def test_an_older_release_offers_nothing(tmp_path: Path, node: Path) -> None:
    """It is there, and geminids does not run it."""
    environ = {"HOME": str(tmp_path), "PATH": str(node.parent)}
    package = _package(tmp_path / "cli", "0.41.2")
    told = capabilities(package, environ=environ, places=Places(tmp_path / "g"))
    assert (told.installed, told.models, told.cli_path, told.version) == (False, (), None, None)


def test_nothing_installed_offers_nothing(tmp_path: Path) -> None:
    """And is no error."""
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    told = capabilities(environ=environ, places=Places(tmp_path / "g"))
    assert (told.installed, told.supports_models, told.models, told.cli_path) == (False, False, (), None)
