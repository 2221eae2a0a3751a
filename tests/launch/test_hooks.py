"""Hooks that a warm process would pass over."""

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


def test_the_users_settings(tmp_path: Path) -> None:
    """One that is on is told with its place; other hooks, none, and hooks that are off are not."""
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


def test_extensions_and_a_trusted_folder(tmp_path: Path) -> None:
    """Their hooks are run too by a headless run; a folder that is not trusted has none."""
    source = SourceHome("user", tmp_path, {})
    work = tmp_path / "work"
    _write(work / ".gemini" / "settings.json", json.dumps(HOOKS))
    assert find_tool_hooks(source) is None
    assert find_tool_hooks(source, work) == str(work / ".gemini" / "settings.json")
    file = tmp_path / ".gemini" / "extensions" / "one" / "hooks" / "hooks.json"
    _write(file, "{ no JSON")
    assert find_tool_hooks(source) is None
    _write(file, json.dumps(HOOKS))
    assert find_tool_hooks(source) == str(file)
