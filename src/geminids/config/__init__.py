"""Where values come from: files, environment, folders; and the schema that forms and pages are made from.

Names are loaded when they are first used: `geminids run` comes through here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminids.config.form import Problem, build_config, validate_config
    from geminids.config.loader import Loaded, load_options
    from geminids.config.schema import ConfigField, config_fields, json_schema, reference_page

__all__ = [
    "ConfigField",
    "Loaded",
    "Problem",
    "build_config",
    "config_fields",
    "json_schema",
    "load_options",
    "reference_page",
    "validate_config",
]

_ROOMS = {
    "form": ("Problem", "build_config", "validate_config"),
    "loader": ("Loaded", "load_options"),
    "schema": ("ConfigField", "config_fields", "json_schema", "reference_page"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'geminids.config' has no attribute {name!r}")
    return getattr(import_module(f"geminids.config.{_HOME[name]}"), name)
