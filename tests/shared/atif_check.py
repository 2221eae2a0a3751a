"""Checks documents in the trajectory format ATIF v1.8, as strictly as its own validator."""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = ["check"]

Fields = dict[str, Any]
_TEXT = (str,)
_COUNT = (int,)
_AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def _check_fields(value: Any, where: str, required: Fields, optional: Fields) -> dict[str, Any]:
    """Check that an object has all required fields, no unknown ones, and the right types."""
    assert isinstance(value, dict), f"{where}: not an object"
    assert set(required) <= set(value), f"{where}: lacks {set(required) - set(value)}"
    known = {**required, **optional}
    assert set(value) <= set(known), f"{where}: unknown {set(value) - set(known)}"
    for name, inner in value.items():
        assert isinstance(inner, known[name]), f"{where}.{name}: {type(inner).__name__}"
        assert not (isinstance(inner, bool) and bool not in known[name]), f"{where}.{name}: a bool"
    return value


def check(document: Any, *, embedded: bool = False) -> None:
    """Raise AssertionError if a document does not follow FORMATS.md, section 8."""
    required = {"schema_version": _TEXT, "agent": (dict,), "steps": (list,)}
    optional: Fields = {
        "session_id": _TEXT,
        "trajectory_id": _TEXT,
        "notes": _TEXT,
        "final_metrics": (dict,),
        "continued_trajectory_ref": _TEXT,
        "subagent_trajectories": (list,),
        "extra": (dict,),
    }
    if embedded:
        required["trajectory_id"] = optional.pop("trajectory_id")
    _check_fields(document, "trajectory", required, optional)
    assert document["schema_version"] == "ATIF-v1.8"
    _check_fields(
        document["agent"],
        "agent",
        {"name": _TEXT, "version": _TEXT},
        {"model_name": _TEXT, "tool_definitions": (list,), "extra": (dict,)},
    )
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    assert document["steps"], "no step"
    inner = document.get("subagent_trajectories", [])
    ids = [trajectory.get("trajectory_id") for trajectory in inner]
    assert len(set(ids)) == len(ids), "trajectory ids are not unique"
    for number, step in enumerate(document["steps"], 1):
        _check_step(step, f"step {number}", None if embedded else set(ids))
    if "final_metrics" in document:
        _check_final_metrics(document)
    for trajectory in inner:
        check(trajectory, embedded=True)


def _check_step(step: Any, where: str, embedded: set[Any] | None) -> None:
    _check_fields(
        step,
        where,
        {"step_id": _COUNT, "source": _TEXT, "message": (str, list)},
        {
            "timestamp": _TEXT,
            "observation": (dict,),
            "is_copied_context": (bool,),
            "llm_call_count": _COUNT,
            "extra": (dict,),
            "model_name": _TEXT,
            "reasoning_effort": (str, int, float),
            "reasoning_content": _TEXT,
            "tool_calls": (list,),
            "metrics": (dict,),
        },
    )
    assert step["source"] in ("system", "user", "agent")
    assert step["source"] == "agent" or not _AGENT_ONLY & set(step), f"{where}: has fields of an agent"
    _check_content(step["message"], where)
    if "timestamp" in step:
        assert datetime.fromisoformat(step["timestamp"]).tzinfo is not None
    if step.get("llm_call_count") == 0:
        assert not {"metrics", "reasoning_content"} & set(step)
    assert step.get("llm_call_count", 0) >= 0
    calls = [_check_call(call, where) for call in step.get("tool_calls", [])]
    if "observation" in step:
        _check_fields(step["observation"], f"{where}.observation", {"results": (list,)}, {})
        for result in step["observation"]["results"]:
            _check_result(result, f"{where}.result", calls, embedded)
    if "metrics" in step:
        _check_fields(
            step["metrics"],
            f"{where}.metrics",
            {},
            {
                **dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), _COUNT),
                "cost_usd": (int, float),
                **dict.fromkeys(("prompt_token_ids", "completion_token_ids", "logprobs"), (list,)),
                "extra": (dict,),
            },
        )


def _check_call(call: Any, where: str) -> str:
    required = {"tool_call_id": _TEXT, "function_name": _TEXT, "arguments": (dict,)}
    return str(_check_fields(call, f"{where}.call", required, {"extra": (dict,)})["tool_call_id"])


def _check_result(result: Any, where: str, calls: list[str], embedded: set[Any] | None) -> None:
    optional = {
        "source_call_id": _TEXT,
        "content": (str, list),
        "subagent_trajectory_ref": (list,),
        "extra": (dict,),
    }
    _check_fields(result, where, {}, optional)
    assert "source_call_id" not in result or result["source_call_id"] in calls, f"{where}: unknown call"
    _check_content(result.get("content", ""), where)
    for ref in result.get("subagent_trajectory_ref", []):
        _check_fields(
            ref,
            where,
            {},
            {"trajectory_id": _TEXT, "trajectory_path": _TEXT, "session_id": _TEXT, "extra": (dict,)},
        )
        assert {"trajectory_id", "trajectory_path"} & set(ref)
        assert embedded is None or ref["trajectory_id"] in embedded, f"{where}: unknown trajectory"


def _check_content(value: Any, where: str) -> None:
    for part in value if isinstance(value, list) else ():
        if part.get("type") == "text":
            _check_fields(part, where, {"type": _TEXT, "text": _TEXT}, {})
        else:
            _check_fields(part, where, {"type": _TEXT, "source": (dict,)}, {})
            assert part["source"]["media_type"] in _IMAGES


def _check_final_metrics(document: dict[str, Any]) -> None:
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "steps")
    optional: Fields = {f"total_{name}": _COUNT for name in names}
    final = _check_fields(
        document["final_metrics"],
        "final_metrics",
        {},
        {**optional, "total_cost_usd": (int, float), "extra": (dict,)},
    )
    assert final.get("total_steps", len(document["steps"])) == len(document["steps"])
