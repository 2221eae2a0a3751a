"""The values that the claude dialect must have for a recorded run, computed from its events alone.

This module uses no code of geminids.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MODES", "REASONS", "Run", "claude_counts"]

# Claude's names for the tools in the recordings.
NAMES = {
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "run_shell_command": "Bash",
    "glob": "Glob",
    "list_directory": "Glob",
    "invoke_agent": "Task",
}
MODES = {"default": "default", "auto_edit": "acceptEdits", "yolo": "bypassPermissions"}
SUBTYPES = {"success": "success", "max_turns": "error_max_turns"}
REASONS = {
    "success": "completed",
    "max_turns": "max_turns",
    "interrupted": "aborted_streaming",
    "timed_out": "aborted_streaming",
}
# A request that the API refused also has the subtype `success`, and this error.
REFUSED = {"auth": "authentication_failed", "bad_request": "invalid_request"}


class Run:
    """A recorded run and the values that its lines must have."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.started = self.events_of("started")[0]
        self.finished = events[-1]
        self.ended = self.events_of("tool_finished")

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def thoughts(self) -> list[str]:
        thoughts = ((event["subject"], event["text"]) for event in self.events_of("thought"))
        return [f"{subject}: {text}" if subject else text for subject, text in thoughts]

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Id, name and input of each call, in the order of their start. The
        warm transport reports the input only at the end of a call or with the
        permission request."""
        late = {event["id"]: event["input"] for event in self.ended}
        asked = {event["id"]: {"command": event["command"]} for event in self.events_of("permission_asked")}
        return [
            _call(
                event["id"], event["name"], event["input"] or late.get(event["id"]) or asked.get(event["id"])
            )
            for event in self.events_of("tool_started")
        ]

    @property
    def results(self) -> list[tuple[str, str, bool, str | None]]:
        """Id, result text, whether it is an error, and the parent call."""
        return [
            (e["id"], e["output"] or e["error"] or "", e["status"] != "ok", e["parent"]) for e in self.ended
        ]

    @property
    def hidden_errors(self) -> list[str | None]:
        """The error of each call that the model does not see, or None."""
        return [
            f"Error: {e['error']}" if e["error"] and e["output"] and e["error"] != e["output"] else None
            for e in self.ended
        ]

    @property
    def denials(self) -> list[dict[str, Any]]:
        denied = {event["id"] for event in self.ended if event["status"] == "denied"}
        return [
            {"tool_name": name, "tool_use_id": call_id, "tool_input": call_input}
            for call_id, name, call_input in self.calls
            if call_id in denied
        ]

    @property
    def requests(self) -> list[tuple[str, dict[str, int]]]:
        """The model and the tokens of each answer in the main conversation."""
        own = [event for event in self.events_of("tokens_used") if event["role"] == "main"]
        answered = [event for event in own if (event.get("status") or 200) < 400]
        # The tokens of an interrupted answer are unknown.
        unknown = {"cache_creation_input_tokens": 0}
        return [
            (event["model"], claude_counts(event) if event["input"] is not None else unknown)
            for event in answered
        ]

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        used = (self.finished["usage"] or {}).get("models", ())
        unknown = dict.fromkeys(("webSearchRequests", "costUSD", "contextWindow", "maxOutputTokens"))
        cost = self.finished.get("cost") or {}
        paid = {model["model"]: {"costUSD": model["usd"]} for model in cost.get("models", ())}
        return {
            model["model"]: {**_model_usage(claude_counts(model)), **unknown, **paid.get(model["model"], {})}
            for model in used
            if not model.get("unknown")
        }

    @property
    def refusal(self) -> str | None:
        kind = str((self.finished["failure"] or {}).get("kind"))
        return REFUSED.get(kind) if self.finished["outcome"] == "failed" else None

    @property
    def subtype(self) -> str:
        return "success" if self.refusal else SUBTYPES.get(self.finished["outcome"], "error_during_execution")


def claude_counts(usage: dict[str, Any]) -> dict[str, int]:
    """Convert token counts to Claude's.
    Input excludes cached tokens, output includes thinking, and unknown counts are left out."""
    counts = {"input_tokens": usage["input"] - usage["cached"], "cache_creation_input_tokens": 0}
    counts["cache_read_input_tokens"] = usage["cached"]
    if usage["thinking"] is not None:
        counts["output_tokens"] = usage["output"] + usage["thinking"]
    return counts


def _model_usage(counts: dict[str, int]) -> dict[str, int | None]:
    def camel(name: str) -> str:
        return re.sub("_(.)", lambda match: match[1].upper(), name)

    return {"outputTokens": None} | {camel(name): count for name, count in counts.items()}


def _call(call_id: str, name: str, tool_input: dict[str, Any] | None) -> tuple[str, str, dict[str, Any]]:
    arguments = dict(tool_input or {})
    if name == "replace":
        arguments.pop("instruction", None)
    elif name == "list_directory":
        arguments = {"pattern": "*", "path": arguments["dir_path"]}
    elif name == "invoke_agent":
        prompt = arguments["prompt"]
        arguments = {"prompt": prompt, "description": prompt, "subagent_type": arguments["agent_name"]}
    return call_id, NAMES.get(name, name), arguments
