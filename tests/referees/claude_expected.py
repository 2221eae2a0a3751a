"""What a recorded run must be in Claude's words, made from its events alone and with no code of ours."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MODES", "REASONS", "Run", "counted"]

# Claude's names for the tools that the recordings have, and their inputs.
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
# What the API refused has the subtype `success` too, and names the mistake.
REFUSED = {"auth": "authentication_failed", "bad_request": "invalid_request"}


class Run:
    """A recording, by what its lines must say."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.started = self.of("started")[0]
        self.finished = events[-1]
        self.ended = self.of("tool_finished")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def thoughts(self) -> list[str]:
        told = ((event["subject"], event["text"]) for event in self.of("thought"))
        return [f"{subject}: {text}" if subject else text for subject, text in told]

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Id, name and input, in the order in which they began; the warm lane tells an input at the end."""
        late = {event["id"]: event["input"] for event in self.ended}
        asked = {event["id"]: {"command": event["command"]} for event in self.of("permission_asked")}
        return [
            _call(
                event["id"], event["name"], event["input"] or late.get(event["id"]) or asked.get(event["id"])
            )
            for event in self.of("tool_started")
        ]

    @property
    def results(self) -> list[tuple[str, str, bool, str | None]]:
        """Id, what the model was told, whether that was bad, and whose call it was."""
        return [
            (e["id"], e["output"] or e["error"] or "", e["status"] != "ok", e["parent"]) for e in self.ended
        ]

    @property
    def asides(self) -> list[str | None]:
        """Errors that the model was not told."""
        return [
            f"Error: {e['error']}" if e["error"] and e["output"] and e["error"] != e["output"] else None
            for e in self.ended
        ]

    @property
    def denials(self) -> list[dict[str, Any]]:
        denied = {event["id"] for event in self.ended if event["status"] == "denied"}
        return [
            {"tool_name": name, "tool_use_id": own, "tool_input": given}
            for own, name, given in self.calls
            if own in denied
        ]

    @property
    def requests(self) -> list[tuple[str, dict[str, int]]]:
        """The model and the tokens of each answer of the agent itself."""
        own = [event for event in self.of("tokens_used") if event["role"] == "main"]
        answered = [event for event in own if (event.get("status") or 200) < 400]
        # Of an interrupted answer no tokens are known.
        nothing = {"cache_creation_input_tokens": 0}
        return [
            (event["model"], counted(event) if event["input"] is not None else nothing) for event in answered
        ]

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        used = (self.finished["usage"] or {}).get("models", ())
        unknown = dict.fromkeys(("webSearchRequests", "costUSD", "contextWindow", "maxOutputTokens"))
        cost = self.finished.get("cost") or {}
        paid = {one["model"]: {"costUSD": one["usd"]} for one in cost.get("models", ())}
        return {
            one["model"]: {**_of_model(counted(one)), **unknown, **paid.get(one["model"], {})}
            for one in used
            if not one.get("unknown")
        }

    @property
    def refusal(self) -> str | None:
        kind = str((self.finished["failure"] or {}).get("kind"))
        return REFUSED.get(kind) if self.finished["outcome"] == "failed" else None

    @property
    def subtype(self) -> str:
        return "success" if self.refusal else SUBTYPES.get(self.finished["outcome"], "error_during_execution")


def counted(usage: dict[str, Any]) -> dict[str, int]:
    """Cached tokens are no part of the input, thinking is part of the output; what is unknown is not there."""
    told = {"input_tokens": usage["input"] - usage["cached"], "cache_creation_input_tokens": 0}
    told["cache_read_input_tokens"] = usage["cached"]
    if usage["thinking"] is not None:
        told["output_tokens"] = usage["output"] + usage["thinking"]
    return told


def _of_model(told: dict[str, int]) -> dict[str, int | None]:
    def camel(name: str) -> str:
        return re.sub("_(.)", lambda found: found[1].upper(), name)

    return {"outputTokens": None} | {camel(name): count for name, count in told.items()}


def _call(own: str, name: str, given: dict[str, Any] | None) -> tuple[str, str, dict[str, Any]]:
    told = dict(given or {})
    if name == "replace":
        told.pop("instruction", None)
    elif name == "list_directory":
        told = {"pattern": "*", "path": told["dir_path"]}
    elif name == "invoke_agent":
        prompt = told["prompt"]
        told = {"prompt": prompt, "description": prompt, "subagent_type": told["agent_name"]}
    return own, NAMES.get(name, name), told
