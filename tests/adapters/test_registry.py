"""The registry of agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids import adapters
from geminids.adapters import Registry, run_agent
from geminids.adapters.sublang import AgentAdapter, GeminiAdapter
from geminids.errors import GeminidsError
from made_up_agents import Letters, Parrot

_BROUGHT = """\
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
owl = brought_by_others:Owl
broken = brought_by_others:nothing_of_that_name
misnamed = brought_by_others:parrot
dull = brought_by_others:__name__
letters = brought_by_others:Owl
leaving = leaves_at_once:Owl
"""


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else's, installed."""
    (tmp_path / "brought_by_others.py").write_text(_BROUGHT)
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(3)\n")
    folder = tmp_path / "brought_by_others-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-by-others\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(_ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


def test_gemini_is_there() -> None:
    """Without anybody's doing; and both are adapters by the protocol."""
    assert adapters.list()[0] == "gemini"
    assert isinstance(adapters.get("gemini"), GeminiAdapter)
    assert all(isinstance(one, AgentAdapter) for one in (GeminiAdapter(), Parrot(), Letters()))


def test_an_adapter_of_ones_own() -> None:
    """Registered, found, run by its name, and taken out again."""
    parrot = Parrot()
    adapters.register(parrot)
    try:
        assert adapters.get("parrot") is parrot
        assert adapters.list()[:2] == ("gemini", "parrot")
        run_agent("parrot", "hi")
    finally:
        assert adapters.unregister("parrot")
    assert not adapters.unregister("parrot")
    assert "parrot" not in adapters.list()


def test_a_duplicate() -> None:
    """Is an error, and the first stays."""
    registry = Registry()
    first = Parrot()
    registry.register(first)
    with pytest.raises(GeminidsError, match="an adapter 'parrot' is already registered"):
        registry.register(Parrot())
    assert registry.get("parrot") is first


class _Nameless(Parrot):
    def __init__(self) -> None:
        super().__init__(agent="")


@pytest.mark.parametrize(
    "wrong",
    [Parrot, object(), None, "gemini", _Nameless()],
    ids=["class", "object", "none", "name", "nameless"],
)
def test_what_is_no_adapter(wrong: Any) -> None:
    """A class, an object without a name, or anything else is refused when it is registered, not when it is run."""
    registry = Registry()
    with pytest.raises(GeminidsError, match="is not an adapter"):
        registry.register(wrong)
    assert registry.list() == Registry().list()


def test_what_is_not_there() -> None:
    """Those that are there are named; to run it is an error before any event."""
    registry = Registry()
    with pytest.raises(GeminidsError, match="Known adapters: none"):
        registry.get("owl")
    registry.register(Parrot())
    registry.register(Letters())
    with pytest.raises(GeminidsError, match="Known adapters: parrot, letters"):
        registry.get("owl")
    with pytest.raises(GeminidsError, match="no adapter 'nobody'"):
        run_agent("nobody", "hi")


@pytest.mark.usefixtures("others")
def test_adapters_of_other_packages() -> None:
    """They are found by their entry point, loaded when asked for, and the same each time."""
    registry = Registry()
    registry.register(Parrot())
    assert registry.list()[:2] == ("parrot", "owl")
    owl = registry.get("owl")
    assert (owl.agent, owl.is_available()) == ("owl", True)
    assert registry.get("owl") is owl
    with pytest.raises(GeminidsError, match="an adapter 'owl' is already registered"):
        registry.register(Parrot(agent="owl"))


@pytest.mark.usefixtures("others")
def test_another_package_takes_no_name_away() -> None:
    """What is registered stays, though somebody brings one of that name."""
    registry = Registry()
    registry.unregister("letters")
    letters = Letters()
    registry.register(letters)
    assert registry.get("letters") is letters


@pytest.mark.usefixtures("others")
def test_what_is_taken_out_stays_out() -> None:
    """Also where a package brings it."""
    registry = Registry()
    assert registry.unregister("owl")
    assert "owl" not in registry.list()
    with pytest.raises(GeminidsError, match="no adapter 'owl'"):
        registry.get("owl")


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken", "cannot load .*: AttributeError"),
        ("misnamed", "not an adapter with that name"),
        ("dull", "not an adapter with that name"),
        ("leaving", "cannot load .*: SystemExit: 3"),
    ],
)
def test_a_package_that_is_broken(name: str, why: str) -> None:
    """It is named, with the reason, and the others still work."""
    registry = Registry()
    with pytest.raises(GeminidsError, match=why):
        registry.get(name)
    assert registry.get("owl").agent == "owl"
