"""A call's options over an instance's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.adapters.sublang.options import AgentOptions, PermissionPolicy, merge_options


def _policy(**fields: Any) -> AgentOptions:
    return AgentOptions(permissions=PermissionPolicy(**fields))


def test_scalars() -> None:
    """The call's value if it is given, else the default."""
    defaults = AgentOptions(cwd="/a", model="pro", max_turns=3, effort="low")
    made = merge_options(defaults, AgentOptions(model="flash", max_turns=0))
    assert made == AgentOptions(cwd="/a", model="flash", max_turns=0, effort="low")
    assert merge_options(defaults, None) == defaults


def test_permissions_are_merged_member_by_member() -> None:
    """The call wins; its paths replace the others whole."""
    defaults = _policy(file_write="allow", shell_execute="deny", writable_paths=("a", "b"))
    made = merge_options(defaults, _policy(shell_execute="ask", writable_paths=("c",)))
    assert made.permissions == PermissionPolicy(
        file_write="allow", shell_execute="ask", writable_paths=("c",)
    )
    assert merge_options(defaults, AgentOptions()).permissions == defaults.permissions
    assert merge_options(AgentOptions(), defaults).permissions == defaults.permissions


@pytest.mark.parametrize("name", ["allowed_tools", "disallowed_tools"])
def test_tool_lists_replace(name: str) -> None:
    """Also when the call's is empty."""
    some: dict[str, Any] = {name: ("glob",)}
    none: dict[str, Any] = {name: ()}
    defaults = AgentOptions(**some)
    assert getattr(merge_options(defaults, AgentOptions(**none)), name) == ()
    assert getattr(merge_options(defaults, AgentOptions()), name) == ("glob",)


@pytest.mark.parametrize(
    ("given", "stored", "used"),
    [(None, "t", "t"), (None, None, None), ("own", "t", "own"), ("", "t", ""), (False, "t", None)],
)
def test_resume(given: Any, stored: str | None, used: str | None) -> None:
    """A text is taken exactly, also an empty one; False begins afresh; nothing means the stored token."""
    assert merge_options(AgentOptions(), AgentOptions(resume=given), stored).resume == used
