"""Decide which options the configuration file of an untrusted project may set.

The file of an untrusted project can make a run stricter, but cannot give the agent more rights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from geminids.config.form import field_named
from geminids.options.flags import Field

__all__ = ["ADDED_UP", "ONLY_TOOLS", "is_inside", "may_set", "restrict"]

# If several sources set one of these, the lists are combined: everything in any list is denied.
ADDED_UP = ("permissions.deny_tools", "permissions.deny_commands", "permissions.deny_servers")

ONLY_TOOLS = "permissions.only_tools"
_DENY_TOOLS = "permissions.deny_tools"

# The values of some options, from the strictest to the most permissive.
_STRICTER_FIRST: dict[str, tuple[Any, ...]] = {
    "approval": ("plan", "default", "auto_edit", "yolo"),
    "leftovers": ("end", "keep"),
}
_CAPABILITY = ("deny", "ask", None, "allow")
_STRICT_SWITCH = {"literal": True, "offline": True, "trust_workspace": False}
# If one of these lists is not set, everything is allowed.
_ALL_IF_EMPTY = ("env_only", ONLY_TOOLS)


def restrict(
    values: Mapping[str, Any], below: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values that an untrusted project may set, and the names of the options that are
    ignored.

    `values` are the values in the project's file, and `folder` is the project's folder. `below` are
    the values that would apply without the project's file.
    """
    kept: dict[str, Any] = {}
    ignored: list[str] = []
    denied: tuple[str, ...] = ()
    for name, value in values.items():
        field = field_named(name)
        before = below.get(name, field.default)
        if may_set(field, value, before, folder):
            kept[name] = value
        elif name == ONLY_TOOLS and value:
            kept[name], denied = _combine_only_tools(value, before)
        else:
            ignored.append(name)
    deny_tools = kept.get(_DENY_TOOLS, ())
    if denied and isinstance(deny_tools, tuple):
        kept[_DENY_TOOLS] = (*deny_tools, *denied)
    return kept, tuple(ignored)


def _combine_only_tools(
    value: tuple[str, ...], before: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Combine the project's `only_tools` (`value`) with the user's (`before`).

    Return the new `only_tools`, and the tools to deny. The new `only_tools` contains the tools that
    are in both lists.

    If no tool is in both lists, no tool may run. But an empty `only_tools` would allow all tools.
    So return the user's list as `only_tools`, and also as the tools to deny.
    """
    both = tuple(tool for tool in before if tool in value)
    return (both, ()) if both else (before, before)


def may_set(field: Field, value: Any, below: Any, folder: str) -> bool:
    """Return whether an untrusted project in `folder` may set `field` to `value`.

    `below` is the value that would apply without the project's file. For a value of the wrong type,
    return True. The value is then not ignored, so the later validation of all options reports it,
    with its line in the file.
    """
    if field.reach == "free":
        return True
    if field.reach == "inside":
        paths = value if isinstance(value, tuple) else (value,)
        return all(is_inside(path, folder) for path in paths if isinstance(path, str))
    return field.reach == "narrows" and _narrows(field, value, below)


def _narrows(field: Field, value: Any, below: Any) -> bool:
    if value == below or field.name in ADDED_UP:
        return True
    if field.kind == "flag":
        return bool(value is _STRICT_SWITCH[field.name] or not isinstance(value, bool))
    if field.kind == "choice":
        order = _STRICTER_FIRST.get(field.name, _CAPABILITY)
        return value not in order or below not in order or order.index(value) <= order.index(below)
    if field.kind == "number":
        return _is_lower(value, below)
    return _is_part(field, value, below)


def _is_lower(value: Any, below: Any) -> bool:
    if not all(isinstance(number, (int, float, type(None))) for number in (value, below)):
        return True
    return value is not None and (below is None or value <= below)


def _is_part(field: Field, value: Any, below: Any) -> bool:
    if not isinstance(value, tuple) or not isinstance(below, (tuple, type(None))):
        return value is not None
    if not all(isinstance(item, str) for item in (*value, *(below or ()))):
        return True
    if field.name in _ALL_IF_EMPTY and not below:
        # An empty `env_only` is the strictest value, because it passes no variables. An empty
        # `only_tools` has no effect.
        return below is None or field.name != "env_only"
    return set(value) <= set(below or ()) and (bool(value) or field.name != ONLY_TOOLS)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is inside a folder, after symbolic links are resolved."""
    try:
        real, root = os.path.realpath(path), os.path.realpath(folder)
    except ValueError:  # the path contains a NUL
        return False
    return real.startswith(root.rstrip(os.sep) + os.sep)
