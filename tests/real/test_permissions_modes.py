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
from geminids.gemini import find

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
    assert f"would change approval={approval} to yolo" in played.why("out")
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
    ("fields", "says"),
    [
        (
            {"permissions": Permissions(shell="deny", allow_tools=("run_shell_command",))},
            "run_shell_command is in allow_tools, but shell is deny",
        ),
        (
            {"permissions": Permissions(allow_commands=("rm",), deny_commands=("rm",))},
            "'rm' is both in allow_commands and in deny_commands",
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
def test_what_cannot_be_is_refused(
    tmp_path: Path, of_release: Any, fields: dict[str, Any], says: str
) -> None:
    """Permissions that contradict each other, or that no rule can hold, start nothing."""
    options = Options(gemini=of_release("0.61.0"), cwd=str(tmp_path), env={"HOME": str(tmp_path)}, **fields)
    events: list[Any] = list(geminids.stream_sync("hello", options))
    failure = events[-1].failure
    assert (failure.kind, says in failure.message) == ("bad_option", True), failure.message
    assert failure.hint
    assert not any(isinstance(event, Started) for event in events)
    assert not (tmp_path / "started").exists()
