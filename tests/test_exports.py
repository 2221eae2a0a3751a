"""All exported names exist, and importing the package is cheap."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import geminids

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(geminids.__path__, "geminids.")
    if module.name not in ("geminids.__main__", "geminids.process.guard_main")
)


def test_all_is_sorted_and_importable() -> None:
    """`__all__` is sorted and equals `dir`, and every name in it can be imported."""
    assert geminids.__all__ == sorted(geminids.__all__)
    assert dir(geminids) == sorted(geminids.__all__)
    assert all(getattr(geminids, name) is not None for name in geminids.__all__)


def test_an_unknown_name_raises() -> None:
    """Lazy loading still raises AttributeError for an unknown name."""
    with pytest.raises(AttributeError, match="no attribute 'asks'"):
        geminids.asks  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_its_exports(name: str) -> None:
    """Each module has every name in its `__all__`."""
    module = importlib.import_module(name)
    missing = [export for export in getattr(module, "__all__", []) if not hasattr(module, export)]
    assert missing == []


def test_importing_loads_nothing_heavy() -> None:
    """Neither the package nor the names that a run needs first load an event loop, psutil, rich or
    click."""
    program = """
import sys, geminids
late = ("anyio", "asyncio", "psutil", "rich", "click", "h11", "trio")
first = [name for name in late if name in sys.modules]
geminids.open_run, geminids.ask_sync, geminids.Options, geminids.Finished
print(first, [name for name in late if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[] []"


def test_public_subpackages_are_attributes_of_the_package() -> None:
    """`import geminids` alone gives access to the public subpackages."""
    program = """
import geminids as g
g.sessions.find, g.dialects.claude.messages, g.dialects.claude.executed, g.config.load_options
g.adapters.get, g.adapters.run_parallel, g.adapters.sublang.AgentOptions
g.adapters.agent_cli_sdk.execute, g.adapters.leadmetrics.execute
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
