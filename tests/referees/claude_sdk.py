"""Referee: the message parser of `claude-agent-sdk` reads the golden files of the claude dialect.

python tests/referees/claude_sdk.py tests/recordings/dialects/claude tests/recordings/dialects/claude-partial

It runs on a Python that has claude-agent-sdk and nothing of geminids. It compares the values with
the recorded events (tests/recordings/events). The program exits with 1 and a message at the first
file that cannot be read or has a wrong value.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

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
from claude_expected import MODES, REASONS, Run, claude_counts
from claude_pieces import check_pieces

FIELDS = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
RELEASE = re.compile(r"\d+\.\d+\.\d+")
EVENTS = Path(__file__).parents[1] / "recordings" / "events"


def main(folders: list[str]) -> int:
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.jsonl"))]
    if not files:
        print("no golden file found", file=sys.stderr)
        return 1
    for file in files:
        try:
            judge_file(file)
        except Exception as error:
            print(f"{file}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    print(f"claude-agent-sdk read {len(files)} files; all values are correct")
    return 0


def judge_file(file: Path) -> None:
    events = [json.loads(line) for line in (EVENTS / file.name).read_text("utf-8").splitlines()]
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    judge(lines, Run(events), partial=file.parent.name.endswith("partial"))


def judge(lines: list[Any], run: Run, *, partial: bool) -> None:
    messages = [parse_message(line) for line in lines]
    check_equal("number of unknown lines", messages.count(None), 0)
    check_lines(lines, run)
    check_start(messages[0], run)
    results = [number for number, message in enumerate(messages) if isinstance(message, ResultMessage)]
    check_equal("positions of the result lines", results, [len(messages) - 1])
    check_texts(messages, run)
    check_tools(messages, run)
    check_order(messages)
    check_usage(messages, run)
    check_refusal(messages, run)
    check_end(messages[-1], run)
    pieces = [message for message in messages if isinstance(message, StreamEvent)]
    check_equal("has pieces", bool(pieces), partial and any(model_messages(messages)))
    if partial:
        check_pieces(messages, StreamEvent, AssistantMessage)


def check_lines(lines: list[Any], run: Run) -> None:
    """Check the fields that every line has."""
    check_equal("session ids", {line["session_id"] for line in lines}, {run.finished["session_id"]})
    check_equal("number of distinct uuids", len({UUID(line["uuid"]) for line in lines}), len(lines))
    check_equal(
        "lines with an invalid version",
        [line for line in lines[:1] if not RELEASE.fullmatch(line["claude_code_version"])],
        [],
    )
    for line in lines:
        if line["type"] in ("assistant", "user", "stream_event"):
            check_equal("has parent_tool_use_id", "parent_tool_use_id" in line, True)
        if line["type"] == "user":
            check_equal("role of a tool result", line["message"]["role"], "user")
        message = line.get("event", line).get("message", {})
        if line["type"] != "user" and message:
            check_message(message, run, is_error="error" in line)


def check_message(message: Any, run: Run, *, is_error: bool) -> None:
    """Check a model message in the API's format, including fields that the SDK does not read."""
    check_equal("fields of a message", set(message), FIELDS)
    check_equal("type and role of a message", (message["type"], message["role"]), ("message", "assistant"))
    check_equal("id of a message begins with msg_", message["id"].startswith("msg_"), True)
    ending = (message["stop_reason"], message["stop_sequence"])
    if is_error:
        check_equal("stop reason and sequence of a refusal", ending, ("stop_sequence", ""))
    else:
        check_equal("stop sequence", ending[1], None)
        models = {event["model"] for event in run.events_of("tokens_used")} | {run.started["model"]}
        check_equal("the model of a message was used in the run", message["model"] in models, True)


def check_start(message: Any, run: Run) -> None:
    check_equal("first line", (type(message), message.subtype), (SystemMessage, "init"))
    fields = [
        message.data[name] for name in ("cwd", "model", "permissionMode", "apiKeySource", "output_style")
    ]
    mode = MODES[run.started["approval"]]
    check_equal(
        "values of the init line", fields, [run.started["cwd"], run.started["model"], mode, "none", "default"]
    )
    lists = ("tools", "mcp_servers", "slash_commands", "agents", "skills", "plugins")
    check_equal("lists of the init line", [message.data[name] for name in lists], [[]] * len(lists))


def check_texts(messages: list[Any], run: Run) -> None:
    text = "".join(block.text for block in blocks(messages, TextBlock))
    check_equal("text", text, run.finished["text"])
    check_equal("thoughts", [block.thinking for block in blocks(messages, ThinkingBlock)], run.thoughts)
    check_equal(
        "signatures that are not empty",
        {block.signature for block in blocks(messages, ThinkingBlock)} - {""},
        set(),
    )
    own = [message.parent_tool_use_id is None for message in model_messages(messages)]
    check_equal(
        "messages without content", [m.message_id for m in model_messages(messages) if not m.content], []
    )
    ids = [message.message_id for message in messages if isinstance(message, AssistantMessage)]
    check_equal(
        "distinct message ids, and whether a subagent is first",
        (len(set(ids)), bool(own) and not own[0]),
        (len(ids), False),
    )


def check_tools(messages: list[Any], run: Run) -> None:
    uses = [(block.id, block.name, block.input) for block in blocks(messages, ToolUseBlock)]
    check_equal("tool calls", uses, run.calls)
    results = [
        (block.tool_use_id, block.content, block.is_error, message.parent_tool_use_id)
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
    ]
    check_equal("tool results", results, run.results)
    hidden_errors = [message.tool_use_result for message in messages if isinstance(message, UserMessage)]
    check_equal("errors hidden from the model", hidden_errors, run.hidden_errors)
    check_equal("permission denials", messages[-1].permission_denials, run.denials)
    parents = {event["id"]: event["parent"] for event in run.events_of("tool_started")}
    owners = [
        (block.id, message.parent_tool_use_id)
        for message in model_messages(messages)
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    check_equal("parents of the tool calls", owners, list(parents.items()))


def check_order(messages: list[Any]) -> None:
    """Check that each result follows its call and precedes the next main message.
    Lines of a subagent follow the call that started it."""
    called: set[str | None] = {None}
    running: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage | StreamEvent) and message.parent_tool_use_id is None:
            check_equal("calls without a result", running, set())
        if isinstance(message, AssistantMessage | UserMessage):
            check_equal("the parent call precedes its line", message.parent_tool_use_id in called, True)
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    called.add(block.id)
                    running |= {block.id} if message.parent_tool_use_id is None else set()
                elif isinstance(block, ToolResultBlock):
                    check_equal("the call precedes its result", block.tool_use_id in called, True)
                    running.discard(block.tool_use_id)


def check_usage(messages: list[Any], run: Run) -> None:
    """Check the tokens of each message, and the totals in the last line."""
    used = run.finished["usage"]
    # If an answer was interrupted, its tokens are unknown, and so is the total.
    is_known = used is not None and not used.get("unknown")
    check_equal("total usage", messages[-1].usage, claude_counts(used) if is_known else None)
    check_equal("usage by model", messages[-1].model_usage, None if used is None else run.models)
    own = [m for m in model_messages(messages) if m.parent_tool_use_id is None]
    unknown: tuple[str, dict[str, int]] = (run.started["model"], {})
    expected = run.requests[: len(own)] + [unknown] * (len(own) - len(run.requests))
    check_equal("tokens of each main message", [(m.model, m.usage) for m in own], expected)
    others = [m.usage for m in model_messages(messages) if m.parent_tool_use_id is not None]
    counts = [claude_counts(event) for event in run.events_of("tokens_used") if event["role"] == "subagent"]
    check_equal("tokens of subagent messages", others, counts[: len(others)])
    is_success = run.finished["outcome"] == "success"
    reasons = [
        "tool_use"
        if any(isinstance(block, ToolUseBlock) for block in m.content)
        else "end_turn"
        if is_success
        else None
        for m in model_messages(messages)
    ]
    check_equal("stop reasons", [message.stop_reason for message in model_messages(messages)], reasons)


def check_refusal(messages: list[Any], run: Run) -> None:
    """Check that an API error is a message right before the last line, and nowhere else."""
    error_messages = [m for m in messages if isinstance(m, AssistantMessage) and m.error]
    errors = [(m.error, m.model, [block.text for block in m.content], m.usage) for m in error_messages]
    expected: list[Any] = [(run.refusal, "<synthetic>", [run.finished["reason"]], {})] if run.refusal else []
    check_equal("API errors", errors, expected)
    check_equal("position of the API error", error_messages, messages[-2:-1] if run.refusal else [])


def check_end(result: Any, run: Run) -> None:
    finished, failure = run.finished, run.finished["failure"] or {}
    succeeded = finished["outcome"] == "success"
    check_equal("is_error", result.is_error, not succeeded)
    check_equal("subtype", result.subtype, run.subtype)
    check_equal("duration", result.duration_ms, finished["duration_ms"])
    check_equal(
        "duration_api_ms is within duration_ms", 0 < result.duration_api_ms <= result.duration_ms, True
    )
    check_equal("turns", result.num_turns, finished["turn"])
    check_equal("cost", result.total_cost_usd, (finished.get("cost") or {}).get("usd"))
    reasons = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "SAFETY": "refusal"}
    stop_reason = reasons.get(finished.get("finish_reason") or "STOP") if succeeded else None
    check_equal("stop reason", result.stop_reason, stop_reason)
    check_equal("HTTP status", result.api_error_status, failure.get("http_status") if run.refusal else None)
    check_equal("terminal reason", getattr(result, "terminal_reason", None), REASONS.get(finished["outcome"]))
    if succeeded or run.refusal:
        text = finished["answer"] if succeeded else finished["reason"]
        check_equal("answer and errors", (result.result, result.errors), (text, None))
    else:
        check_equal("answer and errors", (result.result, result.errors), (None, [finished["reason"]]))


def model_messages(messages: list[Any]) -> list[Any]:
    """Return the messages of models, without those that report an API error."""
    return [m for m in messages if isinstance(m, AssistantMessage) and not m.error]


def blocks(messages: list[Any], kind: type) -> Iterator[Any]:
    for message in model_messages(messages):
        yield from (block for block in message.content if isinstance(block, kind))


def check_equal(name: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise ValueError(f"{name}: {actual!r} instead of {expected!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
