"""SubLang's permission policy, proven by what is on the disk afterwards."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.adapters import run_agent
from geminids.adapters.sublang import AgentEvent, AgentOptions, GeminiAdapter, PermissionPolicy

pytestmark = pytest.mark.real
deep = pytest.mark.deep


def _write(name: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"file_path": name, "content": "x\n"}


SHELL = ("run_shell_command", {"command": "touch by-shell"})


def _run(world: Any, calls: list[Any], **options: Any) -> tuple[list[AgentEvent], set[str]]:
    """The events, and the files that there are afterwards."""
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
    """A file within them is written, one beside them is not, and a link does not lead out."""
    world = make_world("0.61.0")
    (world.cwd / "src").mkdir()
    (world.cwd / "src" / "out").symlink_to(world.cwd)
    policy = PermissionPolicy(file_write="allow", writable_paths=("src",))
    events, files = _run(
        world, [_write("src/in.txt"), _write("beside.txt"), _write("src/out/led.txt")], permissions=policy
    )
    assert files == {"src/in.txt"}
    assert _statuses(events) == ["success", "denied", "denied"]
    assert [one.type for one in events].count("permission_request") == 3


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
def test_what_was_allowed_was_done(make_world: Any, options: dict[str, Any], written: set[str]) -> None:
    """And nothing else was."""
    events, files = _run(make_world("0.61.0"), [_write("a.txt"), SHELL], **options)
    assert files == written
    assert _statuses(events).count("success") == len(written)
