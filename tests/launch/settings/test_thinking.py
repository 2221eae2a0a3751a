"""Tests of `thinking_settings`: an effort becomes settings for both model families."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from geminids.launch.settings.mcp_servers import thinking_settings
from geminids.options import Effort


def _aliases(effort: Any, model: str | None = None) -> dict[str, Any]:
    aliases: dict[str, Any] = thinking_settings(effort, model)["modelConfigs"]["customAliases"]
    return aliases


def _thinking(alias: dict[str, Any]) -> Any:
    return alias["modelConfig"]["generateContentConfig"]["thinkingConfig"]


@pytest.mark.parametrize(
    ("effort", "level", "budget"),
    [
        ("none", "MINIMAL", 0),
        ("minimal", "MINIMAL", 512),
        ("low", "LOW", 2048),
        ("medium", "MEDIUM", 8192),
        ("high", "HIGH", 24576),
        (0, "MINIMAL", 0),
        (512, "MINIMAL", 512),
        (513, "LOW", 513),
        (12288, "MEDIUM", 12288),
        (12289, "HIGH", 12289),
        (1_000_000, "HIGH", 1_000_000),
    ],
)
def test_a_level_and_a_budget(effort: Any, level: str, budget: int) -> None:
    """Gemini 3 gets a level and Gemini 2.5 a budget; gemini-2.5-pro gets at least 128 tokens, its
    minimum."""
    aliases = _aliases(effort)
    assert _thinking(aliases["chat-base-3"]) == {"thinkingLevel": level}
    assert _thinking(aliases["chat-base-2.5"]) == {"thinkingBudget": budget}
    assert _thinking(aliases["gemini-2.5-pro"]) == {"thinkingBudget": max(budget, 128)}


def test_every_effort_has_settings() -> None:
    """Every named effort has settings."""
    for effort in get_args(Effort):
        assert _aliases(effort)


@pytest.mark.parametrize(
    ("model", "family"), [("gemini-9-new", "chat-base-3"), ("gemini-2.5-flash-next", "chat-base-2.5")]
)
def test_an_unknown_model_is_assigned_to_its_family(model: str, family: str) -> None:
    """A Gemini model that the CLI does not know is assigned to its family.

    Known models, aliases such as `flash` and other models are not.
    """
    assert _aliases("low", model)[model] == {"extends": family, "modelConfig": {"model": model}}
    for other in ("flash", "auto", "gemma-4-31b-it", "gemini-2.5-pro", None):
        assert set(_aliases("low", other)) == {"chat-base-3", "chat-base-2.5", "gemini-2.5-pro", *_LITE}


_LITE = ("gemini-3.1-flash-lite", "gemini-3.5-flash-lite")


def test_the_clis_own_requests_keep_their_thinking() -> None:
    """Lite models, which the CLI uses for its own requests, keep their level unless the user chose
    one."""
    for lite in _LITE:
        assert _thinking(_aliases("none", "auto")[lite]) == {"thinkingLevel": "HIGH"}
    for model in ("flash-lite", *_LITE):
        aliases = _aliases("none", model)
        assert [
            lite
            for lite in _LITE
            if lite in aliases and "generateContentConfig" in aliases[lite]["modelConfig"]
        ] == []
