"""`effort` arrives in the requests to the model, and `max_turns` ends a run: as the API and the CLI see it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def _thinking(world: Any, **fields: Any) -> dict[str, Any]:
    """The thinking configuration of the request that a run's answer came from."""
    if fields["model"] == "gemini-2.5-flash" and world.version == "0.54.4":
        pytest.skip("0.54.4 asks gemini-3.5-flash in its place")
    world.gateway.reply(text="hi")
    result = world.ask(**fields)
    assert result.ok, result.failure
    [request] = [request for request in world.gateway.requests if request.method == "stream"]
    found: dict[str, Any] = request.config["thinkingConfig"]
    return found


THREE = "gemini-3-flash-preview"


@pytest.mark.parametrize(
    ("model", "effort", "told"),
    [
        (THREE, "low", {"thinkingLevel": "LOW"}),
        ("gemini-2.5-flash", 1000, {"thinkingBudget": 1000}),
        pytest.param(THREE, "high", {"thinkingLevel": "HIGH"}, marks=deep),
        pytest.param(THREE, "none", {"thinkingLevel": "MINIMAL"}, marks=deep),
        pytest.param(THREE, 5000, {"thinkingLevel": "MEDIUM"}, marks=deep),
        pytest.param("gemini-2.5-flash", "low", {"thinkingBudget": 2048}, marks=deep),
        pytest.param("gemini-2.5-flash", "high", {"thinkingBudget": 24576}, marks=deep),
        pytest.param("gemini-2.5-flash", "none", {"thinkingBudget": 0}, marks=deep),
        pytest.param("gemini-2.5-pro", "none", {"thinkingBudget": 128}, marks=deep),
        pytest.param("gemini-3.9-not-known-yet", "low", {"thinkingLevel": "LOW"}, marks=deep),
        pytest.param("flash", "low", None, marks=deep),
    ],
)
def test_an_effort_arrives(world: Any, model: str, effort: str | int, told: dict[str, Any] | None) -> None:
    """A level for Gemini 3, a budget for Gemini 2.5, and never both; thoughts are still asked for."""
    found = _thinking(world, model=model, effort=effort)
    if told is None:  # an alias: each release has its own model for it
        told = {"thinkingLevel": "LOW"} if "thinkingLevel" in found else {"thinkingBudget": 2048}
    assert found == {"includeThoughts": True, **told}


@deep
@pytest.mark.parametrize(
    ("model", "told"), [(THREE, {"thinkingLevel": "HIGH"}), ("gemini-2.5-flash", {"thinkingBudget": 8192})]
)
def test_without_an_effort_the_cli_decides(world: Any, model: str, told: dict[str, Any]) -> None:
    """No `effort`: the CLI's own default."""
    assert _thinking(world, model=model) == {"includeThoughts": True, **told}


@deep
def test_the_clis_own_requests_stay_as_they_are(world: Any) -> None:
    """What the CLI asks for itself (here: the router of `auto`) is not changed by an effort."""
    own = []
    for effort in (None, "none", "high"):
        before = len(world.gateway.requests)
        world.gateway.reply(text="hi")
        assert world.ask(model="auto", effort=effort).ok
        router, *_ = world.gateway.requests[before:]
        assert router.method == "generate"
        own.append(router.config)
    assert own[0] == own[1] == own[2]


@deep
def test_the_users_own_model_settings_stay(world: Any) -> None:
    """An effort is put beside what the user has set for models, not in its place."""
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(
        '{"modelConfigs": {"overrides": [{"match": {"model": "gemini-2.5-flash"},'
        ' "modelConfig": {"generateContentConfig": {"temperature": 0.123}}}]}}'
    )
    assert _thinking(world, model="gemini-2.5-flash", effort="low")["thinkingBudget"] == 2048
    assert world.gateway.requests[-1].config["temperature"] == 0.123


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=deep)])
def test_max_turns_end_a_run(world: Any, turns: int) -> None:
    """So many turns of the model, then the outcome `max_turns`, and no further request."""
    for _ in range(turns + 1):
        world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    result = world.ask(max_turns=turns)
    assert result.outcome == "max_turns"
    assert len(world.gateway.requests) == turns


@deep
def test_max_turns_that_are_enough(world: Any) -> None:
    """A run that needs no more turns than it has is a success."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="done")
    assert world.ask(max_turns=2).outcome == "success"
