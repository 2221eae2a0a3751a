"""How much the model thinks: a level for Gemini 3, a budget in tokens for Gemini 2.5."""

from __future__ import annotations

from typing import Any

from geminids.launch.settings import Settings
from geminids.options import Effort

__all__ = ["thinking_settings"]

# Gemini 3 has no "off", Gemini 2.5 no levels; each gets what comes nearest.
_LEVELS: dict[str, str] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
}
_BUDGETS: dict[str, int] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
_STEPS = ((512, "MINIMAL"), (2048, "LOW"), (12288, "MEDIUM"))
# The least that gemini-2.5-pro takes: it cannot not think.
_LEAST_OF_PRO = 128
# What the CLI asks for itself goes to one of these, with the configuration of a chat (seen on 0.61.0).
_FOR_ITSELF = ("gemini-3.1-flash-lite", "gemini-3.5-flash-lite")


def thinking_settings(effort: Effort | int, model: str | None) -> Settings:
    """Settings that carry an effort to every chat model, whichever the CLI ends up with.

    The CLI's chat models inherit from two aliases, one a family; those are set anew. Requests that the CLI makes
    for itself (routing, summaries) inherit from others, or are kept as they are. `model` is the one that was asked for.
    """
    aliases = {
        "chat-base-3": _alias("chat-base", {"thinkingLevel": _level(effort)}),
        "chat-base-2.5": _alias("chat-base", {"thinkingBudget": _budget(effort)}),
        "gemini-2.5-pro": _alias(
            "chat-base-2.5", {"thinkingBudget": max(_budget(effort), _LEAST_OF_PRO)}, "gemini-2.5-pro"
        ),
    }
    if model not in ("flash-lite", *_FOR_ITSELF):
        aliases |= {own: _alias("chat-base", {"thinkingLevel": "HIGH"}, own) for own in _FOR_ITSELF}
    if model is not None and model.startswith("gemini-") and model not in aliases:
        # An id that the CLI may not know, and would give no thinking configuration at all.
        family = "chat-base-2.5" if model.startswith("gemini-2") else "chat-base-3"
        aliases[model] = {"extends": family, "modelConfig": {"model": model}}
    return {"modelConfigs": {"customAliases": aliases}}


def _alias(extends: str, thinking: dict[str, Any], model: str | None = None) -> dict[str, Any]:
    config: dict[str, Any] = {"generateContentConfig": {"thinkingConfig": thinking}}
    return {"extends": extends, "modelConfig": {**config, "model": model} if model else config}


def _level(effort: Effort | int) -> str:
    if isinstance(effort, str):
        return _LEVELS[effort]
    return next((level for most, level in _STEPS if effort <= most), "HIGH")


def _budget(effort: Effort | int) -> int:
    return _BUDGETS[effort] if isinstance(effort, str) else effort
