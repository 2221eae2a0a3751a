"""The list of fields says a word about every option."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from geminids.config.fields import GROUPS, Reach, fields
from geminids.options import Options, Permissions


def test_every_option_is_in_the_list_with_its_reach() -> None:
    """A new field without a word about group, flag and what a project may do with it fails here."""
    names = [name for name in Options.__struct_fields__ if name != "permissions"]
    names += [f"permissions.{name}" for name in Permissions.__struct_fields__]
    assert sorted(field.name for field in fields()) == sorted(names)
    assert {field.reach for field in fields()} <= set(get_args(Reach))
    assert {field.group for field in fields()} == set(GROUPS)
    assert all(field.description for field in fields())


def test_defaults_are_those_of_the_options() -> None:
    """No default is written twice."""
    made = Options()
    for field in fields():
        value = msgspec.to_builtins(made)
        owner = made.permissions if field.name.startswith("permissions.") else made
        assert field.default == getattr(owner, field.name.rpartition(".")[2]), value


def test_flags_and_variables_are_unique() -> None:
    """And none is the variable that names our own folders or the file itself."""
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
def test_what_gives_power_is_not_free(name: str, reach: str) -> None:
    """The words that matter, once more: this list is not changed by accident."""
    assert {field.name: field.reach for field in fields()}[name] == reach
