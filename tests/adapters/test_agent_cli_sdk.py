"""Tests of the agent-cli-sdk adapter: options of `execute`, and the capabilities of the CLI."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from geminids.adapters.agent_cli_sdk import PERMISSION_MODES, execute, execute_sync, get_capabilities
from geminids.config.paths import Places


def test_permission_modes() -> None:
    """Only Claude's four permission modes are valid. Another one is an error, and no run starts."""
    assert set(PERMISSION_MODES) == {"default", "plan", "acceptEdits", "bypassPermissions"}
    result = execute_sync("hello", permission_mode="yes")
    assert (result.success, result.exit_code) == (False, -1)
    assert "permission_mode: 'yes' is not one of default, plan, acceptEdits, bypassPermissions" in (
        result.error or ""
    )
    assert execute_sync("hello", permission_mode=["plan"]).exit_code == -1  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_bad_options_are_reported() -> None:
    """Invalid options and a run that cannot start return a failed result and raise no exception."""
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
    ("version", "known_model", "unknown_model"),
    [
        ("0.61.0", "gemini-3.8-flash", None),
        ("0.54.4", "gemini-3-flash-preview", "gemini-3.8-flash"),
    ],
)
def test_capabilities_of_a_release(
    tmp_path: Path, node: Path, version: str, known_model: str, unknown_model: str | None
) -> None:
    """`get_capabilities` lists the models of the installed release, in agent-cli-sdk's field names."""
    package = _package(tmp_path / "cli", version)
    environ = {"HOME": str(tmp_path), "PATH": str(node.parent)}
    report = get_capabilities(gemini=package, environ=environ, places=Places(tmp_path / "g"))
    fields = msgspec.to_builtins(report)
    assert (fields["installed"], fields["supportsModels"], fields["supportsSlashCommands"]) == (
        True,
        True,
        False,
    )
    assert (fields["version"], fields["supportsThinking"]) == (version, True)
    assert fields["cliPath"].endswith("bundle/gemini.js")
    ids = {model["id"] for model in fields["models"]}
    assert known_model in ids
    assert unknown_model not in ids


def test_unsupported_release_has_no_capabilities(tmp_path: Path, node: Path) -> None:
    """A release that geminids does not support is reported as not installed."""
    environ = {"HOME": str(tmp_path), "PATH": str(node.parent)}
    package = _package(tmp_path / "cli", "0.41.2")
    report = get_capabilities(gemini=package, environ=environ, places=Places(tmp_path / "g"))
    assert (report.installed, report.models, report.cli_path, report.version) == (False, (), None, None)


def test_missing_cli_has_no_capabilities(tmp_path: Path) -> None:
    """Without a CLI, `get_capabilities` reports nothing installed and raises no error."""
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    report = get_capabilities(environ=environ, places=Places(tmp_path / "g"))
    assert (report.installed, report.supports_models, report.models, report.cli_path) == (
        False,
        False,
        (),
        None,
    )
