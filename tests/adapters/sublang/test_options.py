"""Tests of merging the options of a call with the defaults of an instance."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.adapters.sublang.options import AgentOptions, PermissionPolicy, merge_options


def _policy(**fields: Any) -> AgentOptions:
    return AgentOptions(permissions=PermissionPolicy(**fields))


def test_scalars() -> None:
    """A value of the call wins over the default."""
    defaults = AgentOptions(cwd="/a", model="pro", max_turns=3, effort="low")
    merged = merge_options(defaults, AgentOptions(model="flash", max_turns=0))
    assert merged == AgentOptions(cwd="/a", model="flash", max_turns=0, effort="low")
    assert merge_options(defaults, None) == defaults


def test_permissions_are_merged_member_by_member() -> None:
    """Permissions are merged field by field, and the call wins.
    Its paths replace the default paths."""
    defaults = _policy(file_write="allow", shell_execute="deny", writable_paths=("a", "b"))
    merged = merge_options(defaults, _policy(shell_execute="ask", writable_paths=("c",)))
    assert merged.permissions == PermissionPolicy(
        file_write="allow", shell_execute="ask", writable_paths=("c",)
    )
    assert merge_options(defaults, AgentOptions()).permissions == defaults.permissions
    assert merge_options(AgentOptions(), defaults).permissions == defaults.permissions


@pytest.mark.parametrize("name", ["allowed_tools", "disallowed_tools"])
def test_tool_lists_replace_the_default(name: str) -> None:
    """A tool list of the call replaces the default list, even if it is empty."""
    some: dict[str, Any] = {name: ("glob",)}
    none: dict[str, Any] = {name: ()}
    defaults = AgentOptions(**some)
    assert getattr(merge_options(defaults, AgentOptions(**none)), name) == ()
    assert getattr(merge_options(defaults, AgentOptions()), name) == ("glob",)


@pytest.mark.parametrize(
    ("resume_option", "stored", "expected"),
    [(None, "t", "t"), (None, None, None), ("own", "t", "own"), ("", "t", ""), (False, "t", None)],
)
def test_resume(resume_option: Any, stored: str | None, expected: str | None) -> None:
    """A token of the call is used unchanged, and False starts a new session.
    Without a value, the stored token is used."""
    assert merge_options(AgentOptions(), AgentOptions(resume=resume_option), stored).resume == expected
