"""The first screen of a chat: folder, model, permissions, and how to leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminids import Options, Permissions
from geminids.views.terminal.chat_start import first_screen


def _screen(options: Options, model: str | None = None, width: int = 80) -> list[str]:
    return [line.plain for line in first_screen(options, model, width)]


def test_the_first_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first screen shows the folder, the model, the permissions, and how to leave."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert _screen(Options()) == [
        "folder       ~",
        "model        chosen by Gemini CLI",
        "permissions  default: reads, asks before anything else",
        "/help lists the commands · Ctrl-D leaves",
    ]
    assert _screen(Options(), "flash")[1] == "model        flash"
    assert _screen(Options(offline=True), "flash")[1] == "model        scripted, offline"
    (tmp_path / "a\x1b[2Jb").mkdir()
    assert "\x1b" not in _screen(Options(cwd="a\x1b[2Jb"))[0]


def test_rules_are_part_of_the_permissions() -> None:
    """The permissions list the rules, wrapped at words below each other."""
    rules = Permissions(network="allow", shell="ask", mcp="deny", deny_commands=("rm",), only_tools=("glob",))
    assert _screen(Options(approval="plan", permissions=rules), width=46)[2:-1] == [
        "permissions  plan: only reads and plans;",
        "             allowed: network; asks for:",
        "             shell; denied: mcp, rm; only",
        "             these tools: glob",
    ]
