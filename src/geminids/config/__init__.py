"""Load the options of runs, and describe all options for forms and the reference page.

The submodules are imported on first use, so that `geminids run` starts faster.
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

_NAMES_BY_MODULE = {
    "form": ("Problem", "build_config", "validate_config"),
    "loader": ("Loaded", "load_options"),
    "schema": ("ConfigField", "config_fields", "json_schema", "reference_page"),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'geminids.config' has no attribute {name!r}")
    return getattr(import_module(f"geminids.config.{_MODULES[name]}"), name)
