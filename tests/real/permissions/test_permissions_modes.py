"""A run stays in its approval mode, and impossible permissions are refused before the start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import geminids
from geminids import Options, Permissions, Started
from geminids.gemini import find
from tool_actions import ToolAction, run_actions

pytestmark = pytest.mark.real

# Enter plan mode, write a plan, leave plan mode: a headless CLI by itself is in yolo mode
# afterwards.
ESCAPE = {
    "in": ToolAction("enter_plan_mode", {"reason": "to plan"}),
    "plan": ToolAction("write_file", {"file_path": "plan.md", "content": "# Plan\n1. Do it.\n"}),
    "out": ToolAction("exit_plan_mode", {"plan_filename": "plan.md"}),
    "shell": ToolAction("run_shell_command", {"command": "touch escaped.txt"}),
}


@pytest.mark.parametrize(
    "approval",
    ["default", "plan", pytest.param("auto_edit", marks=pytest.mark.deep)],
)
def test_no_mode_ends_in_yolo(world: Any, approval: str) -> None:
    """Calls that enter and leave plan mode do not change the run to yolo: the shell stays
    denied."""
    action_run = run_actions(world, ESCAPE.items(), approval=approval)
    assert [action_run.finished[step].status for step in ("in", "out", "shell")] == ["denied"] * 3
    assert f"would change the approval mode from {approval} to yolo" in action_run.why("out")
    assert not (world.cwd / "escaped.txt").exists()
    assert (world.cwd / "plan.md").exists() == (approval == "auto_edit")


@pytest.mark.deep
def test_a_users_allow_does_not_lead_to_yolo(world: Any) -> None:
    """The shell stays denied even if a user policy allows the calls that enter and leave plan
    mode."""
    policies = world.home / ".gemini" / "policies"
    policies.mkdir(parents=True)
    allow = 'toolName = ["enter_plan_mode", "exit_plan_mode"]\ndecision = "allow"\npriority = 999\n'
    (policies / "mine.toml").write_text(f"[[rule]]\n{allow}")
    action_run = run_actions(world, ESCAPE.items())
    assert {event.status for event in action_run.finished.values()} == {"denied"}
    assert not (world.cwd / "escaped.txt").exists()


@pytest.mark.deep
@pytest.mark.parametrize("approval", ["default", "plan"])
def test_plain_gemini_does_end_in_yolo(world: Any, approval: str) -> None:
    """Counter-check: the CLI by itself changes to yolo after plan mode. When this test fails, our
    rule against it can be removed."""
    for action in ESCAPE.values():
        world.gateway.reply(calls=[(action.tool, action.args)])
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
def make_fake_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a fake CLI that reports the given version. It creates the file `started` if it is
    started for anything else than `--version`."""
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
    ("fields", "message"),
    [
        (
            {"permissions": Permissions(shell="deny", allow_tools=("run_shell_command",))},
            "run_shell_command is in `allow_tools`, but shell is deny",
        ),
        (
            {"permissions": Permissions(allow_commands=("rm",), deny_commands=("rm",))},
            "'rm' is both in `allow_commands` and in `deny_commands`",
        ),
        (
            {"permissions": Permissions(deny_commands=("x" * 3000,))},
            "is too long for a rule",
        ),
    ],
    ids=[
        "allow_and_deny",
        "commands",
        "too_long",
    ],
)
def test_impossible_permissions_are_refused(
    tmp_path: Path, make_fake_release: Any, fields: dict[str, Any], message: str
) -> None:
    """Permissions that contradict each other, or that no rule can express, fail with `bad_option`
    before the CLI is started."""
    options = Options(
        gemini=make_fake_release("0.61.0"), cwd=str(tmp_path), env={"HOME": str(tmp_path)}, **fields
    )
    events: list[Any] = list(geminids.stream_sync("hello", options))
    failure = events[-1].failure
    assert (failure.kind, message in failure.message) == ("bad_option", True), failure.message
    assert failure.hint
    assert not any(isinstance(event, Started) for event in events)
    assert not (tmp_path / "started").exists()
