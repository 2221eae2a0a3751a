"""SubLang's permission policy with the real CLI: the files on disk show which actions were
allowed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.adapters import run_agent
from geminids.adapters.sublang import AgentEvent, AgentOptions, GeminiAdapter, PermissionPolicy

pytestmark = pytest.mark.real
deep = pytest.mark.deep


def _write_call(name: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"file_path": name, "content": "x\n"}


SHELL = ("run_shell_command", {"command": "touch by-shell"})


def _run(world: Any, calls: list[Any], **options: Any) -> tuple[list[AgentEvent], set[str]]:
    """Run the agent with these scripted tool calls; return its events and the files in its
    folder."""
    for call in calls:
        world.gateway.when("hello", calls=[call])
    world.gateway.when("hello", text="Done.")
    events: list[AgentEvent] = []

    async def main() -> None:
        adapter = GeminiAdapter(world.options())
        events.extend([one async for one in run_agent(adapter, "hello", AgentOptions(**options))])

    anyio.run(main)
    assert events[-1].payload.status == "success"
    files = {str(file.relative_to(world.cwd)) for file in world.cwd.rglob("*") if file.is_file()}
    return events, files


def _statuses(events: list[AgentEvent]) -> list[str]:
    return [one.payload.status for one in events if one.type == "tool_result"]


def test_writable_paths(make_world: Any) -> None:
    """With `writable_paths`, a tool can write a file inside these paths. A file outside, or behind
    a symbolic link that leads outside, is denied."""
    world = make_world("0.61.0")
    (world.cwd / "src").mkdir()
    (world.cwd / "src" / "out").symlink_to(world.cwd)
    policy = PermissionPolicy(file_write="allow", writable_paths=("src",))
    events, files = _run(
        world,
        [_write_call("src/in.txt"), _write_call("beside.txt"), _write_call("src/out/led.txt")],
        permissions=policy,
    )
    assert files == {"src/in.txt"}
    assert _statuses(events) == ["success", "denied", "denied"]
    assert [one.type for one in events].count("permission_request") == 3
    outside = "the file is not in permissions.writable_paths"
    assert [one.payload.output for one in events if one.type == "tool_result"][1:] == [outside, outside]
    decided = [one.payload for one in events if one.type == "geminids:permission_decided"]
    assert [(one["decision"], one["by"]) for one in decided] == [
        ("allow", "rule"),
        ("deny", "rule"),
        ("deny", "rule"),
    ]


@deep
@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"permissions": PermissionPolicy(file_write="allow")}, {"a.txt"}),
        ({"permissions": PermissionPolicy()}, set()),
        ({"permissions": PermissionPolicy(mode="bypass")}, {"a.txt", "by-shell"}),
        ({"permissions": PermissionPolicy(mode="bypass"), "allowed_tools": ()}, set()),
        ({"permissions": PermissionPolicy(mode="auto"), "disallowed_tools": ("write_file",)}, {"by-shell"}),
        ({"allowed_tools": ("write_file",)}, {"a.txt"}),
        (
            {"permissions": PermissionPolicy(), "allowed_tools": ("write_file", "run_shell_command")},
            {"a.txt", "by-shell"},
        ),
        (
            {
                "permissions": PermissionPolicy(shell_execute="deny"),
                "allowed_tools": ("write_file", "run_shell_command"),
            },
            {"a.txt"},
        ),
    ],
)
def test_only_allowed_actions_happen(make_world: Any, options: dict[str, Any], written: set[str]) -> None:
    """The policy and the tool lists let exactly the allowed actions happen."""
    events, files = _run(make_world("0.61.0"), [_write_call("a.txt"), SHELL], **options)
    assert files == written
    assert _statuses(events).count("success") == len(written)
