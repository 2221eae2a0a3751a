"""`effort` sets the thinking configuration of requests, and `max_turns` ends a run."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def _thinking_config(world: Any, **fields: Any) -> dict[str, Any]:
    """Run a prompt, and return the thinking configuration of its request."""
    if fields["model"] == "gemini-2.5-flash" and world.version == "0.54.4":
        pytest.skip("0.54.4 requests gemini-3.5-flash instead")
    world.gateway.reply(text="hi")
    result = world.ask(**fields)
    assert result.ok, result.failure
    [request] = [request for request in world.gateway.requests if request.method == "stream"]
    config: dict[str, Any] = request.config["thinkingConfig"]
    return config


GEMINI_3 = "gemini-3-flash-preview"


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        (GEMINI_3, "low", {"thinkingLevel": "LOW"}),
        ("gemini-2.5-flash", 1000, {"thinkingBudget": 1000}),
        pytest.param(GEMINI_3, "high", {"thinkingLevel": "HIGH"}, marks=deep),
        pytest.param(GEMINI_3, "none", {"thinkingLevel": "MINIMAL"}, marks=deep),
        pytest.param(GEMINI_3, 5000, {"thinkingLevel": "MEDIUM"}, marks=deep),
        pytest.param("gemini-2.5-flash", "low", {"thinkingBudget": 2048}, marks=deep),
        pytest.param("gemini-2.5-flash", "high", {"thinkingBudget": 24576}, marks=deep),
        pytest.param("gemini-2.5-flash", "none", {"thinkingBudget": 0}, marks=deep),
        pytest.param("gemini-2.5-pro", "none", {"thinkingBudget": 128}, marks=deep),
        pytest.param("gemini-3.9-not-known-yet", "low", {"thinkingLevel": "LOW"}, marks=deep),
        pytest.param("flash", "low", None, marks=deep),
    ],
)
def test_an_effort_arrives(world: Any, model: str, effort: str | int, sent: dict[str, Any] | None) -> None:
    """An effort is sent as a level for Gemini 3 or as a budget for Gemini 2.5, never both. Thoughts
    are still requested."""
    config = _thinking_config(world, model=model, effort=effort)
    if sent is None:  # an alias, which means another model in each release
        sent = {"thinkingLevel": "LOW"} if "thinkingLevel" in config else {"thinkingBudget": 2048}
    assert config == {"includeThoughts": True, **sent}


@deep
@pytest.mark.parametrize(
    ("model", "sent"), [(GEMINI_3, {"thinkingLevel": "HIGH"}), ("gemini-2.5-flash", {"thinkingBudget": 8192})]
)
def test_without_an_effort_the_cli_decides(world: Any, model: str, sent: dict[str, Any]) -> None:
    """Without `effort`, the request has the CLI's default."""
    assert _thinking_config(world, model=model) == {"includeThoughts": True, **sent}


@deep
def test_utility_requests_ignore_the_effort(world: Any) -> None:
    """An effort does not change utility requests of the CLI, such as the router of `auto`."""
    router_configs = []
    for effort in (None, "none", "high"):
        before = len(world.gateway.requests)
        world.gateway.reply(text="hi")
        assert world.ask(model="auto", effort=effort).ok
        router, *_ = world.gateway.requests[before:]
        assert router.method == "generate"
        router_configs.append(router.config)
    assert router_configs[0] == router_configs[1] == router_configs[2]


@deep
def test_the_users_own_model_settings_stay(world: Any) -> None:
    """An effort is added to the user's own model settings and does not replace them."""
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(
        '{"modelConfigs": {"overrides": [{"match": {"model": "gemini-2.5-flash"},'
        ' "modelConfig": {"generateContentConfig": {"temperature": 0.123}}}]}}'
    )
    assert _thinking_config(world, model="gemini-2.5-flash", effort="low")["thinkingBudget"] == 2048
    assert world.gateway.requests[-1].config["temperature"] == 0.123


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=deep)])
def test_max_turns_end_a_run(world: Any, turns: int) -> None:
    """A run ends with the outcome `max_turns` after that many model turns, and sends no further
    request."""
    for _ in range(turns + 1):
        world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    result = world.ask(max_turns=turns)
    assert result.outcome == "max_turns"
    assert len(world.gateway.requests) == turns


@deep
def test_max_turns_is_not_reached(world: Any) -> None:
    """A run that needs no more than `max_turns` turns succeeds."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="done")
    assert world.ask(max_turns=2).outcome == "success"
