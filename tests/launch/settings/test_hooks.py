"""Tests of `find_tool_hooks`: BeforeTool hooks, which a warm process would not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geminids.launch.home import SourceHome
from geminids.launch.permissions.warm_policy import find_tool_hooks

HOOKS: dict[str, Any] = {
    "hooks": {"BeforeTool": [{"matcher": "*", "hooks": [{"type": "command", "command": "x"}]}]}
}


def _write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def test_hooks_of_the_user(tmp_path: Path) -> None:
    """An enabled BeforeTool hook of the user's settings is reported with its folder.

    Disabled hooks and hooks of other events are not reported.
    """
    assert find_tool_hooks(SourceHome("user", tmp_path, HOOKS)) == f"the settings in {tmp_path / '.gemini'}"
    without: list[dict[str, Any]] = [
        {},
        {"hooks": {"AfterTool": HOOKS["hooks"]["BeforeTool"]}},
        {"hooks": {"BeforeTool": []}},
        {"hooks": 3},
        {**HOOKS, "hooksConfig": {"enabled": False}},
    ]
    for settings in without:
        assert find_tool_hooks(SourceHome("user", tmp_path, settings)) is None


def test_hooks_of_extensions_and_of_a_trusted_folder(tmp_path: Path) -> None:
    """Hooks of extensions and of a trusted folder are reported with their file; an untrusted folder
    is not read."""
    source = SourceHome("user", tmp_path, {})
    folder = tmp_path / "work"
    _write(folder / ".gemini" / "settings.json", json.dumps(HOOKS))
    assert find_tool_hooks(source) is None
    assert find_tool_hooks(source, folder) == str(folder / ".gemini" / "settings.json")
    file = tmp_path / ".gemini" / "extensions" / "one" / "hooks" / "hooks.json"
    _write(file, "{ no JSON")
    assert find_tool_hooks(source) is None
    _write(file, json.dumps(HOOKS))
    assert find_tool_hooks(source) == str(file)
