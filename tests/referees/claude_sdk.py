"""A referee that is not ours: the message parser of `claude-agent-sdk` reads the live form of the claude dialect.

python tests/referees/claude_sdk.py tests/recordings/dialects/claude tests/recordings/dialects/claude-partial

Runs on a Python that has claude-agent-sdk and nothing of ours. Exits with 1 and a message at the first file that is not
read, or whose values are not those of the recorded events (tests/recordings/events).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claude_agent_sdk import (  # type: ignore[import-not-found,unused-ignore]
    AssistantMessage,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk._internal.message_parser import (  # type: ignore[import-not-found,unused-ignore]
    parse_message,
)

# Claude's names for the tools that the recordings have.
NAMES = {
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "run_shell_command": "Bash",
    "glob": "Glob",
    "list_directory": "Glob",
    "invoke_agent": "Task",
}
EVENTS = Path(__file__).parents[1] / "recordings" / "events"


def main(folders: list[str]) -> int:
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.jsonl"))]
    if not files:
        print("there is no golden file to read", file=sys.stderr)
        return 1
    for file in files:
        try:
            judge(file)
        except Exception as error:
            print(f"{file}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    print(f"claude-agent-sdk read {len(files)} files, and all their values are right")
    return 0


def judge(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    messages = [parse_message(line) for line in lines]
    events = [json.loads(line) for line in (EVENTS / file.name).read_text("utf-8").splitlines()]
    finished = events[-1]
    same(
        "unknown lines", [line for line, message in zip(lines, messages, strict=True) if message is None], []
    )
    same("the first line", (type(messages[0]), messages[0].subtype), (SystemMessage, "init"))
    results = [number for number, message in enumerate(messages) if isinstance(message, ResultMessage)]
    same("results", results, [len(messages) - 1])
    check_words(messages, events)
    check_tools(messages, events)
    check_usage(messages, finished)
    check_end(messages[-1], finished)
    if any(isinstance(message, StreamEvent) for message in messages):
        pieces = "".join(
            message.event["delta"]["text"]
            for message in messages
            if isinstance(message, StreamEvent) and message.event.get("delta", {}).get("type") == "text_delta"
        )
        same("the pieces", pieces, finished["text"])


def check_words(messages: list[Any], events: list[Any]) -> None:
    said = "".join(block.text for block in blocks(messages, TextBlock))
    same("the text", said, events[-1]["text"])
    thoughts = [
        f"{event['subject']}: {event['text']}" if event["subject"] else event["text"]
        for event in events
        if event["type"] == "thought"
    ]
    same("the thoughts", [block.thinking for block in blocks(messages, ThinkingBlock)], thoughts)


def check_tools(messages: list[Any], events: list[Any]) -> None:
    ended = [event for event in events if event["type"] == "tool_finished"]
    uses = list(blocks(messages, ToolUseBlock))
    begun = [event for event in events if event["type"] == "tool_started"]
    called = [(event["id"], NAMES.get(event["name"], event["name"])) for event in begun]
    same("the calls", [(use.id, use.name) for use in uses], called)
    same("inputs that are no objects", [use.id for use in uses if not isinstance(use.input, dict)], [])
    told = [(block.tool_use_id, block.content, block.is_error) for block in blocks(messages, ToolResultBlock)]
    held = [(e["id"], e["output"] or e["error"] or "", e["status"] != "ok") for e in ended]
    same("the results", told, held)
    denied = [entry["tool_use_id"] for entry in messages[-1].permission_denials]
    same("the denials", denied, [event["id"] for event in ended if event["status"] == "denied"])
    parents = [
        message.parent_tool_use_id
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
    ]
    same("the parents", parents, [event["parent"] for event in ended])


def check_usage(messages: list[Any], finished: dict[str, Any]) -> None:
    """Each message's tokens once: they are never more than the run's, which the result has."""
    whole = counted(finished["usage"])
    same("the usage", messages[-1].usage, whole)
    by_id = {m.message_id: m.usage for m in messages if isinstance(m, AssistantMessage)}
    for name, number in (whole or {}).items():
        told = sum(usage.get(name, 0) for usage in by_id.values())
        if told > number:
            raise ValueError(f"the messages have {told} {name}, the run {number}")
    models = {one["model"] for one in (finished["usage"] or {}).get("models", ())}
    same("the models", set(messages[-1].model_usage or ()), models)


def counted(usage: dict[str, Any] | None) -> dict[str, int] | None:
    if usage is None:
        return None
    told = {"input_tokens": usage["input"] - usage["cached"], "cache_creation_input_tokens": 0}
    told["cache_read_input_tokens"] = usage["cached"]
    if usage["thinking"] is not None:
        told["output_tokens"] = usage["output"] + usage["thinking"]
    return told


def check_end(result: Any, finished: dict[str, Any]) -> None:
    succeeded = finished["outcome"] == "success"
    same("is_error", result.is_error, not succeeded)
    same("the session", result.session_id, finished["session_id"])
    same("the duration", result.duration_ms, finished["duration_ms"])
    if succeeded:
        same("the answer", result.result, finished["answer"])
    else:
        same("the reason", result.errors or [result.result], [finished["reason"]])


def blocks(messages: list[Any], kind: type) -> Iterator[Any]:
    """Blocks of that kind, but for what an API failure says in the agent's name."""
    for message in messages:
        if isinstance(message, AssistantMessage | UserMessage) and not getattr(message, "error", None):
            yield from (block for block in message.content if isinstance(block, kind))


def same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{what}: {found!r}, and not {expected!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
