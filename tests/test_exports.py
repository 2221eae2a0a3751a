"""What can be imported is what is promised, and importing costs next to nothing."""

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
    """`__all__` is what `dir` shows, and every name in it is there."""
    assert geminids.__all__ == sorted(geminids.__all__)
    assert dir(geminids) == sorted(geminids.__all__)
    assert all(getattr(geminids, name) is not None for name in geminids.__all__)


def test_a_name_that_is_not_promised_is_not_there() -> None:
    """Late loading must not hide a mistake."""
    with pytest.raises(AttributeError, match="no attribute 'asks'"):
        geminids.asks  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_what_it_exports(name: str) -> None:
    """Each `__all__` names existing things, sorted as ruff sorts them."""
    module = importlib.import_module(name)
    missing = [export for export in getattr(module, "__all__", []) if not hasattr(module, export)]
    assert missing == []


def test_importing_loads_nothing_heavy() -> None:
    """Neither the package nor the names that a run starts with load an event loop, psutil, rich or click."""
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


def test_public_rooms_are_reached_from_the_package_alone() -> None:
    """`import geminids` is enough for what the README says."""
    program = """
import geminids as g
g.sessions.find, g.dialects.claude.messages, g.dialects.claude.executed, g.config.load_options
g.adapters.get, g.adapters.run_parallel, g.adapters.sublang.AgentOptions
g.adapters.agent_cli_sdk.execute, g.adapters.leadmetrics.execute
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
