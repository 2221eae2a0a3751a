"""Tests of the adapter registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fake_agents import FakeAgent, IteratorAgent
from geminids import adapters
from geminids.adapters import Registry, run_agent
from geminids.adapters.sublang import AgentAdapter, GeminiAdapter
from geminids.errors import GeminidsError

_PLUGIN = """\
class Owl:
    agent = "owl"
    def is_available(self):
        return True
    async def run(self, prompt, options):
        yield None

parrot = Owl()
"""
_ENTRIES = """\
[geminids.adapters]
owl = example_plugin:Owl
broken = example_plugin:missing_name
misnamed = example_plugin:parrot
dull = example_plugin:__name__
letters = example_plugin:Owl
exiting = exits_on_import:Owl
"""


@pytest.fixture
def plugin_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that provides adapters through entry points."""
    (tmp_path / "example_plugin.py").write_text(_PLUGIN)
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit(3)\n")
    folder = tmp_path / "example_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: example-plugin\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(_ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


def test_gemini_is_registered() -> None:
    """The registry contains the Gemini adapter. All adapters satisfy the protocol."""
    assert adapters.list()[0] == "gemini"
    assert isinstance(adapters.get("gemini"), GeminiAdapter)
    assert all(isinstance(agent, AgentAdapter) for agent in (GeminiAdapter(), FakeAgent(), IteratorAgent()))


def test_register_and_unregister() -> None:
    """A registered adapter can be found, listed, run by its name and unregistered."""
    parrot = FakeAgent()
    adapters.register(parrot)
    try:
        assert adapters.get("parrot") is parrot
        assert adapters.list()[:2] == ("gemini", "parrot")
        run_agent("parrot", "hi")
    finally:
        assert adapters.unregister("parrot")
    assert not adapters.unregister("parrot")
    assert "parrot" not in adapters.list()


def test_duplicate_name() -> None:
    """Registering a name twice is an error, and the first adapter stays."""
    registry = Registry()
    first = FakeAgent()
    registry.register(first)
    with pytest.raises(GeminidsError, match="an adapter 'parrot' is already registered"):
        registry.register(FakeAgent())
    assert registry.get("parrot") is first


class _Nameless(FakeAgent):
    def __init__(self) -> None:
        super().__init__(agent="")


@pytest.mark.parametrize(
    "invalid",
    [FakeAgent, object(), None, "gemini", _Nameless()],
    ids=["class", "object", "none", "name", "nameless"],
)
def test_invalid_adapter(invalid: Any) -> None:
    """An object that is not an adapter is refused by `register`, not later by a run."""
    registry = Registry()
    with pytest.raises(GeminidsError, match="is not an adapter"):
        registry.register(invalid)
    assert registry.list() == Registry().list()


def test_unknown_name() -> None:
    """The error for an unknown name lists the known adapters. `run_agent` raises it at once."""
    registry = Registry()
    with pytest.raises(GeminidsError, match="Known adapters: none"):
        registry.get("owl")
    registry.register(FakeAgent())
    registry.register(IteratorAgent())
    with pytest.raises(GeminidsError, match="Known adapters: parrot, letters"):
        registry.get("owl")
    with pytest.raises(GeminidsError, match="no adapter 'nobody'"):
        run_agent("nobody", "hi")


@pytest.mark.usefixtures("plugin_package")
def test_adapters_from_entry_points() -> None:
    """Adapters of installed packages are listed, loaded on first use, and then kept."""
    registry = Registry()
    registry.register(FakeAgent())
    assert registry.list()[:2] == ("parrot", "owl")
    owl = registry.get("owl")
    assert (owl.agent, owl.is_available()) == ("owl", True)
    assert registry.get("owl") is owl
    with pytest.raises(GeminidsError, match="an adapter 'owl' is already registered"):
        registry.register(FakeAgent(agent="owl"))


@pytest.mark.usefixtures("plugin_package")
def test_registered_adapter_wins_over_an_entry_point() -> None:
    """A registered adapter wins over an entry point with the same name."""
    registry = Registry()
    registry.unregister("letters")
    letters = IteratorAgent()
    registry.register(letters)
    assert registry.get("letters") is letters


@pytest.mark.usefixtures("plugin_package")
def test_unregistered_entry_point_stays_hidden() -> None:
    """After `unregister`, an adapter from an entry point is not found again."""
    registry = Registry()
    assert registry.unregister("owl")
    assert "owl" not in registry.list()
    with pytest.raises(GeminidsError, match="no adapter 'owl'"):
        registry.get("owl")


@pytest.mark.usefixtures("plugin_package")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "cannot load .*: AttributeError"),
        ("misnamed", "an adapter with another name: its attribute `agent` is 'owl'"),
        ("dull", r"is not an adapter\n"),
        ("exiting", "cannot load .*: SystemExit: 3"),
    ],
)
def test_broken_entry_point(name: str, reason: str) -> None:
    """A broken entry point raises an error with the reason. The other adapters still work."""
    registry = Registry()
    with pytest.raises(GeminidsError, match=reason):
        registry.get(name)
    assert registry.get("owl").agent == "owl"
