"""The tokens of a run as cakit counts them: thinking is completion, and a model with a hole is left out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from geminids.events.model import Usage
from geminids.wire.json_report import ModelReport

__all__ = ["ModelTokens", "ReportUsage", "of_models", "of_report"]


class ModelTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one served model; cached ones are in the prompt, thinking ones in the completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | UnsetType = UNSET
    thinking_tokens: int | UnsetType = UNSET


class ReportUsage(msgspec.Struct, frozen=True):
    """What a json report tells: the models with all their numbers, and how often any was asked."""

    models: dict[str, ModelTokens]
    requests: int | None


def of_models(usage: Usage | None) -> dict[str, ModelTokens]:
    """From the usage of a run, without models that have requests with unknown tokens."""
    told = {
        model.model: _tokens(model.input, model.output, model.thinking, model.total, model.cached)
        for model in (usage.models if usage else ())
        if not model.unknown
    }
    return {name: tokens for name, tokens in told.items() if tokens}


def of_report(models: Mapping[str, ModelReport]) -> ReportUsage:
    """From the models of a json report, under the CLI's own names."""
    told = {}
    for name, model in models.items():
        counts = model.tokens
        told[name] = _tokens(counts.prompt, counts.candidates, counts.thoughts, counts.total, counts.cached)
    requests = [model.api.total_requests for model in models.values()]
    known = [number for number in requests if number is not None]
    asked = sum(known) if requests and len(known) == len(requests) else None
    return ReportUsage({name: tokens for name, tokens in told.items() if tokens}, asked)


def _tokens(
    prompt: int | None, said: int | None, thought: int | None, total: int | None, cached: int | None
) -> ModelTokens | None:
    if prompt is None or said is None or thought is None:
        return None
    completion = said + thought
    return ModelTokens(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion if total is None else total,
        cached_tokens=UNSET if cached is None else cached,
        thinking_tokens=thought,
    )
