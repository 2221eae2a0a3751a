"""The list of configuration fields covers every option."""

from __future__ import annotations

from typing import get_args

import pytest

from geminids.options import Options, Permissions
from geminids.options.flags import GROUPS, Reach, fields


def test_every_option_is_in_the_list() -> None:
    """Every option is in the list, with a group, a description and a rule for what a project may
    set.
    """
    names = [name for name in Options.__struct_fields__ if name != "permissions"]
    names += [f"permissions.{name}" for name in Permissions.__struct_fields__]
    assert sorted(field.name for field in fields()) == sorted(names)
    assert {field.reach for field in fields()} <= set(get_args(Reach))
    assert {field.group for field in fields()} == set(GROUPS)
    assert all(field.description for field in fields())


def test_defaults_are_those_of_the_options() -> None:
    """The default of each field is that of `Options`."""
    options = Options()
    for field in fields():
        owner = options.permissions if field.name.startswith("permissions.") else options
        assert field.default == getattr(owner, field.name.rpartition(".")[2]), field.name


def test_flags_and_variables_are_unique() -> None:
    """Each flag and each variable belongs to one field.

    No field uses GEMINIDS_HOME or GEMINIDS_CONFIG.
    """
    flags = [field.flag for field in fields() if field.flag]
    variables = [field.env for field in fields() if field.env]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)
    assert not {"GEMINIDS_HOME", "GEMINIDS_CONFIG"} & set(variables)


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("approval", "narrows"),
        ("env", "power"),
        ("env_file", "power"),
        ("mcp_servers", "power"),
        ("include_dirs", "power"),
        ("skills", "power"),
        ("gemini", "power"),
        ("home", "power"),
        ("system_prompt", "power"),
        ("cwd", "power"),
        ("resume", "power"),
        ("template", "power"),
        ("prices", "power"),
        ("max_budget", "narrows"),
        ("instructions", "inside"),
        ("trust_workspace", "narrows"),
        ("permissions.allow_tools", "narrows"),
    ],
)
def test_rules_for_sensitive_options(name: str, reach: str) -> None:
    """The rules for sensitive options are repeated here, so that nobody changes them by accident."""
    assert {field.name: field.reach for field in fields()}[name] == reach
