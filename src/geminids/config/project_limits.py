"""What a project's own file may set without the user's word: what leaves the agent less power, and nothing more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from geminids.config.fields import Field
from geminids.config.form import field_named

__all__ = ["ADDED_UP", "ONLY_TOOLS", "is_inside", "may_set", "restrain"]

# Denies of all layers hold, whoever said them.
ADDED_UP = ("permissions.deny_tools", "permissions.deny_commands", "permissions.deny_servers")

ONLY_TOOLS = "permissions.only_tools"
_DENY_TOOLS = "permissions.deny_tools"

# From the least power to the most.
_STRICTER_FIRST: dict[str, tuple[Any, ...]] = {
    "approval": ("plan", "default", "auto_edit", "yolo"),
    "leftovers": ("end", "keep"),
}
_CAPABILITY = ("deny", "ask", None, "allow")
_STRICT_SWITCH = {"literal": True, "offline": True, "trust_workspace": False}
# Where nothing is said, everything is meant.
_ALL_IF_EMPTY = ("env_only", ONLY_TOOLS)


def restrain(
    values: Mapping[str, Any], below: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What of a project's values holds although nobody trusts it, and the names of those that do not."""
    kept: dict[str, Any] = {}
    passed_over: list[str] = []
    denied: tuple[str, ...] = ()
    for name, value in values.items():
        field = field_named(name)
        before = below.get(name, field.default)
        if may_set(field, value, before, folder):
            kept[name] = value
        elif name == ONLY_TOOLS and value:
            kept[name], denied = _both(value, before)
        else:
            passed_over.append(name)
    also = kept.get(_DENY_TOOLS, ())
    if denied and isinstance(also, tuple):
        kept[_DENY_TOOLS] = (*also, *denied)
    return kept, tuple(passed_over)


def _both(value: tuple[str, ...], before: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two lists of the only tools hold at once: what both name, and where that is nothing, a deny for the rest."""
    both = tuple(one for one in before if one in value)
    return (both, ()) if both else (before, before)


def may_set(field: Field, value: Any, below: Any, folder: str) -> bool:
    """Whether a project that is not trusted may set `field`, where `below` is what holds without it.

    A value of the wrong kind may pass: it is refused with its line when the options are checked.
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
    if not all(isinstance(one, (int, float, type(None))) for one in (value, below)):
        return True
    return value is not None and (below is None or value <= below)


def _is_part(field: Field, value: Any, below: Any) -> bool:
    if not isinstance(value, tuple) or not isinstance(below, (tuple, type(None))):
        return value is not None
    if not all(isinstance(one, str) for one in (*value, *(below or ()))):
        return True
    if field.name in _ALL_IF_EMPTY and not below:
        # An empty `env_only` passes on nothing; an empty `only_tools` is none at all.
        return below is None or field.name != "env_only"
    return set(value) <= set(below or ()) and (bool(value) or field.name != ONLY_TOOLS)


def is_inside(path: str, folder: str) -> bool:
    """Whether a path, links followed, lies below a folder."""
    try:
        real, root = os.path.realpath(path), os.path.realpath(folder)
    except ValueError:  # a NUL in it
        return False
    return real.startswith(root.rstrip(os.sep) + os.sep)
