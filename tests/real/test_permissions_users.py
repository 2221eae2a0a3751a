"""The user's own policies and settings keep their force beside the permissions of a run, and are never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts import Played, play
from geminids import Permissions, Started

pytestmark = pytest.mark.real

ALLOW = Permissions(file_write="allow", shell="allow", mcp="allow")
DENY = '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = {}\n'


def _settings(world: Any, **settings: Any) -> None:
    file = world.home / ".gemini" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(settings))


def _policy(world: Any, text: str, name: str = "policies/mine.toml") -> Path:
    file: Path = world.home / ".gemini" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _denied_by_priority(world: Any, priority: int) -> None:
    _policy(world, DENY.format(priority))


def _denied_by_path(world: Any, path: str) -> None:
    _policy(world, DENY.format(500), "elsewhere/own.toml")
    (world.cwd / "own.toml").write_text(DENY.format(500))
    _settings(world, policyPaths=[path])


WAYS: dict[str, Any] = {
    "priority 100": lambda world: _denied_by_priority(world, 100),
    "priority 999": lambda world: _denied_by_priority(world, 999),
    "priority 0": lambda world: _denied_by_priority(world, 0),
    "policyPaths": lambda world: _denied_by_path(world, str(world.home / ".gemini/elsewhere")),
    "policyPaths, ~": lambda world: _denied_by_path(world, "~/.gemini/elsewhere/own.toml"),
    "policyPaths, $": lambda world: _denied_by_path(world, "${HOME}/.gemini/elsewhere"),
    "policyPaths, relative": lambda world: _denied_by_path(world, "own.toml"),
    "tools.exclude": lambda world: _settings(world, tools={"exclude": ["write_file"]}),
}
_FAST = ("priority 999", "tools.exclude")


def _files(world: Any) -> dict[str, bytes]:
    own = world.home / ".gemini"
    return {
        str(file): file.read_bytes() for file in own.rglob("*") if file.is_file() and "tmp" not in file.parts
    }


def _assert_held(played: Played) -> None:
    """The user's deny counts, and no more than it says."""
    assert played.outcome("write") == "denied", played.outcome("write")
    assert "denied by the user's own policies or settings" in played.why("write")
    assert [played.outcome(act) for act in ("replace", "shell", "mcp")] == ["ok"] * 3


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in _FAST else pytest.mark.deep) for way in WAYS]
)
def test_a_users_deny_stays_in_force(world: Any, way: str) -> None:
    """A run that is allowed that very tool does not get it, whatever the deny's priority; its file stays as it is."""
    WAYS[way](world)
    before = _files(world)
    _assert_held(play(world, ["write", "replace", "shell", "mcp"], "default", ALLOW))
    after = _files(world)
    assert {name: after[name] for name in before} == before


def test_a_users_allow_does_not_beat_the_run(world: Any) -> None:
    """What the run denies stays denied, however high the user's own allow is."""
    _policy(world, DENY.format(999).replace("deny", "allow"))
    played = play(world, ["write", "read"], "yolo", Permissions(file_write="deny"))
    assert [played.outcome("write"), played.outcome("read")] == ["denied", "ok"]


@pytest.mark.deep
def test_a_users_allow_does_not_beat_only_tools(world: Any) -> None:
    """`only_tools` keeps out what the user has allowed: built-in tools, servers, and other tools of a server."""
    rule = '[[rule]]\ntoolName = "*"\n{}decision = "allow"\npriority = 999\n'
    _policy(world, rule.format("") + rule.format('mcpName = "*"\n'))
    played = play(world, ["write", "shell", "mcp", "read"], "yolo", Permissions(only_tools=("read_file",)))
    assert [played.outcome(act) for act in ("write", "shell", "mcp", "read")] == ["denied"] * 3 + ["ok"]
    assert not (world.cwd / "lab.started").exists()


@pytest.mark.deep
def test_a_users_allow_counts_where_the_run_says_nothing(world: Any) -> None:
    """The user's own policies are in force: what they allow needs no further allow."""
    _policy(world, DENY.format(100).replace("deny", "allow"))
    played = play(world, ["write", "replace"], "default", Permissions())
    assert [played.outcome("write"), played.outcome("replace")] == ["ok", "denied"]


@pytest.mark.deep
@pytest.mark.parametrize("first", ["deny", "allow"])
def test_the_users_rules_keep_their_order(world: Any, first: str) -> None:
    """999 goes before 998, and 1 before 0, in whatever files they are."""
    second = {"deny": "allow", "allow": "deny"}[first]
    replace = DENY.replace("write_file", "replace")
    _policy(world, DENY.format(998).replace("deny", second) + replace.format(0).replace("deny", second))
    _policy(
        world,
        DENY.format(999).replace("deny", first) + replace.format(1).replace("deny", first),
        "policies/a.toml",
    )
    played = play(world, ["write", "replace"], "default", Permissions())
    expected = {"deny": "denied", "allow": "ok"}[first]
    assert [played.outcome("write"), played.outcome("replace")] == [expected] * 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]\n", "cannot be read"),
        (DENY.format(100).replace("deny", "denny"), "its rule 1 has a decision that is not one of"),
        (DENY.format(100) + DENY.format(1000), "its rule 2 has a priority that is not a whole number"),
    ],
    ids=["toml", "decision", "priority"],
)
def test_a_broken_policy_of_the_users_is_a_clear_error(world: Any, text: str, says: str) -> None:
    """The CLI would pass over the file, and over a deny in it: the run is refused, and nothing is started."""
    file = _policy(world, text)
    events = world.events()
    assert events[-1].failure.kind == "config"
    assert str(file) in events[-1].failure.message
    assert says in events[-1].failure.message
    assert not any(isinstance(event, Started) for event in events)
    assert world.gateway.requests == []
    assert file.read_text() == text
