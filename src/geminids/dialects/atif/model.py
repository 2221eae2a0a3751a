"""Structs of ATIF documents (Agent Trajectory Interchange Format, v1.8).

The structs contain only those fields of the format that geminids fills.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "VERSION",
    "Agent",
    "Call",
    "FinalMetrics",
    "Metrics",
    "Observation",
    "Observed",
    "Reference",
    "Step",
    "Trajectory",
]

VERSION = "ATIF-v1.8"


class _AtifStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of all structs in this module. Fields that are None are omitted from the JSON."""


class Reference(_AtifStruct, frozen=True, kw_only=True):
    trajectory_id: str


class Observed(_AtifStruct, frozen=True, kw_only=True):
    """The result of a tool call. `source_call_id` is the id of this call, which is in the same
    step."""

    source_call_id: str
    content: str | None = None
    subagent_trajectory_ref: list[Reference] | None = None
    extra: dict[str, Any] | None = None


class Observation(_AtifStruct, frozen=True, kw_only=True):
    results: list[Observed | msgspec.Raw]


class Call(_AtifStruct, frozen=True, kw_only=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class Metrics(_AtifStruct, frozen=True, kw_only=True):
    """The token counts of one step.

    The prompt tokens include cached tokens and the tokens that a tool of the API added to the
    prompt (`toolUsePromptTokenCount`). The completion tokens include the tokens of thoughts.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    extra: dict[str, int] | None = None


class Step(_AtifStruct, frozen=True, kw_only=True):
    step_id: int
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    message: str
    model_name: str | None = None
    reasoning_content: str | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = None
    observation: Observation | None = None
    tool_calls: list[Call | msgspec.Raw] | None = None
    extra: dict[str, Any] | None = None


class Agent(_AtifStruct, frozen=True, kw_only=True):
    name: str
    version: str
    model_name: str | None = None
    extra: dict[str, Any] | None = None


class FinalMetrics(_AtifStruct, frozen=True, kw_only=True):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int
    extra: dict[str, int] | None = None


class Trajectory(_AtifStruct, frozen=True, kw_only=True):
    """One ATIF document. Its steps are already encoded as JSON.

    The document of a subagent is part of another document. Only such a document has a
    `trajectory_id`.
    """

    schema_version: str
    trajectory_id: str | None = None
    session_id: str | None = None
    steps: list[msgspec.Raw]
    subagent_trajectories: list[msgspec.Raw] | None = None
    agent: Agent
    final_metrics: FinalMetrics | None = None
    notes: str | None = None
    extra: dict[str, Any] | None = None
