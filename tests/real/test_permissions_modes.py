"""A run stays in its approval mode to the end, and permissions that cannot be are refused before anything starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import geminids
from acts import Act, perform
from geminids import Options, Permissions, Started
from geminids.toolchain import find

pytestmark = pytest.mark.real

# Into plan mode, a plan, out of it again: headless, the CLI then takes itself to be in yolo.
ESCAPE = {
    "in": Act("enter_plan_mode", {"reason": "to plan"}),
    "plan": Act("write_file", {"file_path": "plan.md", "content": "# Plan\n1. Do it.\n"}),
    "out": Act("exit_plan_mode", {"plan_filename": "plan.md"}),
    "shell": Act("run_shell_command", {"command": "touch escaped.txt"}),
}


@pytest.mark.parametrize(
    "approval",
    ["default", "plan", pytest.param("auto_edit", marks=pytest.mark.deep)],
)
def test_no_mode_ends_in_yolo(world: Any, approval: str) -> None:
    """Neither entering nor leaving plan mode is a way to the shell."""
    played = perform(world, ESCAPE.items(), approval=approval)
    assert [played.finished[step].status for step in ("in", "out", "shell")] == ["denied"] * 3
    assert f"would leave approval={approval} for yolo" in played.why("out")
    assert not (world.cwd / "escaped.txt").exists()
    assert (world.cwd / "plan.md").exists() == (approval == "auto_edit")


@pytest.mark.deep
def test_a_users_allow_opens_no_way_to_yolo(world: Any) -> None:
    """So it is where the user's own policies allow all of plan mode."""
    policies = world.home / ".gemini" / "policies"
    policies.mkdir(parents=True)
    allow = 'toolName = ["enter_plan_mode", "exit_plan_mode"]\ndecision = "allow"\npriority = 999\n'
    (policies / "mine.toml").write_text(f"[[rule]]\n{allow}")
    played = perform(world, ESCAPE.items())
    assert {event.status for event in played.finished.values()} == {"denied"}
    assert not (world.cwd / "escaped.txt").exists()


@pytest.mark.deep
@pytest.mark.parametrize("approval", ["default", "plan"])
def test_plain_gemini_does_end_in_yolo(world: Any, approval: str) -> None:
    """The other side: once the CLI no longer escapes by itself, this fails, and our rule for it can go."""
    for act in ESCAPE.values():
        world.gateway.reply(calls=[(act.tool, act.args)])
    world.gateway.reply(text="done")
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (world.home / ".gemini").mkdir()
    (world.home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    argv = [*find(world.version, places=world.places).command(world.places), f"--approval-mode={approval}"]
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = subprocess.run(
        [*argv, "--model=flash", "--prompt=plan it"],
        cwd=world.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert (world.cwd / "escaped.txt").exists()


@pytest.fixture
def of_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CLI that calls itself that release, and leaves a file where it is started for more than its version."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))

    def make(version: str) -> str:
        script = tmp_path / f"gemini-{version}"
        script.write_text(
            f"#!{sys.executable} -IS\nimport sys\n"
            f"if '--version' in sys.argv: sys.exit(print({version!r}))\n"
            f"open({str(tmp_path / 'started')!r}, 'w').close()\n"
        )
        script.chmod(0o755)
        return str(script)

    return make


@pytest.mark.parametrize(
    ("version", "fields", "kind", "says"),
    [
        (
            "0.24.0",
            {"permissions": Permissions(deny_commands=("rm",))},
            "cli_unsupported",
            "Gemini CLI 0.24.0 cannot express these permissions: deny_commands",
        ),
        (
            "0.24.0",
            {"permissions": Permissions(only_tools=("read_file", "mcp_lab_mark"))},
            "cli_unsupported",
            "only_tools with tools of MCP servers",
        ),
        (
            "0.32.1",
            {"permissions": Permissions(allow_commands=("git status",))},
            "cli_unsupported",
            "Gemini CLI 0.32.1 cannot express these permissions: allow_commands",
        ),
        ("0.24.0", {"approval": "plan"}, "cli_unsupported", "has no --approval-mode=plan"),
        ("0.17.1", {"permissions": Permissions(skills="allow")}, "cli_unsupported", "allow skills"),
        ("0.11.3", {"permissions": Permissions(shell="allow")}, "cli_unsupported", "allow shell"),
        (
            "0.61.0",
            {"permissions": Permissions(shell="deny", allow_tools=("run_shell_command",))},
            "bad_option",
            "run_shell_command is in allow_tools, but shell is deny",
        ),
        (
            "0.61.0",
            {"permissions": Permissions(allow_commands=("rm",), deny_commands=("rm",))},
            "bad_option",
            "'rm' is both in allow_commands and in deny_commands",
        ),
        (
            "0.61.0",
            {"permissions": Permissions(deny_commands=("x" * 3000,))},
            "bad_option",
            "is too long for a rule",
        ),
    ],
    ids=[
        "deny_commands",
        "only_mcp",
        "allow_commands",
        "plan",
        "skills",
        "shell",
        "allow_and_deny",
        "commands",
        "too_long",
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, of_release: Any, version: str, fields: dict[str, Any], kind: str, says: str
) -> None:
    """A release that has no words for a permission is not started with less; nor is any for a contradiction."""
    options = Options(gemini=of_release(version), cwd=str(tmp_path), env={"HOME": str(tmp_path)}, **fields)
    events: list[Any] = list(geminids.stream_sync("hello", options))
    failure = events[-1].failure
    assert (failure.kind, says in failure.message) == (kind, True), failure.message
    assert failure.hint
    assert not any(isinstance(event, Started) for event in events)
    assert not (tmp_path / "started").exists()
