"""The user's own policies and settings apply together with a run's permissions.

A run never changes the user's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminids import Permissions, Started
from tool_actions import ActionRun, run_named_actions

pytestmark = pytest.mark.real

ALLOW = Permissions(file_write="allow", shell="allow", mcp="allow")
DENY = '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = {}\n'


def _write_settings(world: Any, **settings: Any) -> None:
    file = world.home / ".gemini" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(settings))


def _write_policy(world: Any, text: str, name: str = "policies/mine.toml") -> Path:
    file: Path = world.home / ".gemini" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _deny_with_priority(world: Any, priority: int) -> None:
    _write_policy(world, DENY.format(priority))


def _deny_by_path(world: Any, path: str) -> None:
    _write_policy(world, DENY.format(500), "elsewhere/own.toml")
    (world.cwd / "own.toml").write_text(DENY.format(500))
    _write_settings(world, policyPaths=[path])


DENIALS: dict[str, Any] = {
    "priority 100": lambda world: _deny_with_priority(world, 100),
    "priority 999": lambda world: _deny_with_priority(world, 999),
    "priority 0": lambda world: _deny_with_priority(world, 0),
    "policyPaths": lambda world: _deny_by_path(world, str(world.home / ".gemini/elsewhere")),
    "policyPaths, ~": lambda world: _deny_by_path(world, "~/.gemini/elsewhere/own.toml"),
    "policyPaths, $": lambda world: _deny_by_path(world, "${HOME}/.gemini/elsewhere"),
    "policyPaths, relative": lambda world: _deny_by_path(world, "own.toml"),
    "tools.exclude": lambda world: _write_settings(world, tools={"exclude": ["write_file"]}),
}
_FAST = ("priority 999", "tools.exclude")


def _user_files(world: Any) -> dict[str, bytes]:
    gemini = world.home / ".gemini"
    return {
        str(file): file.read_bytes()
        for file in gemini.rglob("*")
        if file.is_file() and "tmp" not in file.parts
    }


def _assert_only_write_is_denied(action_run: ActionRun) -> None:
    """`write_file` is denied by the user's rule, and the other tools run."""
    assert action_run.outcome("write") == "denied", action_run.outcome("write")
    assert "denied by the user's own policies or settings" in action_run.why("write")
    assert [action_run.outcome(action) for action in ("replace", "shell", "mcp")] == ["ok"] * 3


@pytest.mark.parametrize(
    "denial", [pytest.param(denial, marks=() if denial in _FAST else pytest.mark.deep) for denial in DENIALS]
)
def test_a_users_deny_stays_in_force(world: Any, denial: str) -> None:
    """A deny of the user overrides an allow of the run, at any priority. The run does not change
    the user's files."""
    DENIALS[denial](world)
    before = _user_files(world)
    _assert_only_write_is_denied(
        run_named_actions(world, ["write", "replace", "shell", "mcp"], "default", ALLOW)
    )
    after = _user_files(world)
    assert {name: after[name] for name in before} == before


def test_a_users_allow_does_not_beat_the_run(world: Any) -> None:
    """A deny of the run overrides an allow of the user, even at the highest user priority."""
    _write_policy(world, DENY.format(999).replace("deny", "allow"))
    action_run = run_named_actions(world, ["write", "read"], "yolo", Permissions(file_write="deny"))
    assert [action_run.outcome("write"), action_run.outcome("read")] == ["denied", "ok"]


@pytest.mark.deep
def test_a_users_allow_does_not_beat_only_tools(world: Any) -> None:
    """`only_tools` overrides a user policy that allows all tools: other tools are denied, and the
    MCP server is not started."""
    rule = '[[rule]]\ntoolName = "*"\n{}decision = "allow"\npriority = 999\n'
    _write_policy(world, rule.format("") + rule.format('mcpName = "*"\n'))
    action_run = run_named_actions(
        world, ["write", "shell", "mcp", "read"], "yolo", Permissions(only_tools=("read_file",))
    )
    outcomes = [action_run.outcome(action) for action in ("write", "shell", "mcp", "read")]
    assert outcomes == ["denied"] * 3 + ["ok"]
    assert not (world.cwd / "lab.started").exists()


@pytest.mark.deep
def test_a_users_allow_applies_without_a_rule_of_the_run(world: Any) -> None:
    """A user policy that allows a tool applies if the run has no rule for that tool."""
    _write_policy(world, DENY.format(100).replace("deny", "allow"))
    action_run = run_named_actions(world, ["write", "replace"], "default", Permissions())
    assert [action_run.outcome("write"), action_run.outcome("replace")] == ["ok", "denied"]


@pytest.mark.deep
@pytest.mark.parametrize("first", ["deny", "allow"])
def test_the_users_rules_keep_their_order(world: Any, first: str) -> None:
    """Of two user rules for one tool, the one with the higher priority applies, also across
    files."""
    second = {"deny": "allow", "allow": "deny"}[first]
    replace = DENY.replace("write_file", "replace")
    _write_policy(world, DENY.format(998).replace("deny", second) + replace.format(0).replace("deny", second))
    _write_policy(
        world,
        DENY.format(999).replace("deny", first) + replace.format(1).replace("deny", first),
        "policies/a.toml",
    )
    action_run = run_named_actions(world, ["write", "replace"], "default", Permissions())
    expected = {"deny": "denied", "allow": "ok"}[first]
    assert [action_run.outcome("write"), action_run.outcome("replace")] == [expected] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "cannot be read"),
        (DENY.format(100).replace("deny", "denny"), "rule number 1 has a decision that is not one of"),
        (DENY.format(100) + DENY.format(1000), "rule number 2 has a priority that is not a whole number"),
    ],
    ids=["toml", "decision", "priority"],
)
def test_a_broken_policy_of_the_users_is_a_clear_error(world: Any, text: str, message: str) -> None:
    """A broken policy file of the user fails the run before the CLI starts, because the CLI would
    ignore the denies in that file."""
    file = _write_policy(world, text)
    events = world.events()
    assert events[-1].failure.kind == "config"
    assert str(file) in events[-1].failure.message
    assert message in events[-1].failure.message
    assert not any(isinstance(event, Started) for event in events)
    assert world.gateway.requests == []
    assert file.read_text() == text
