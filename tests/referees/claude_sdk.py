"""A referee that is not ours: the message parser of `claude-agent-sdk` reads the live form of the claude dialect.

python tests/referees/claude_sdk.py tests/recordings/dialects/claude tests/recordings/dialects/claude-partial

Runs on a Python that has claude-agent-sdk and nothing of ours. Exits with 1 and a message at the first file that is not
read, or whose values are not those of the recorded events (tests/recordings/events).
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
from claude_expected import MODES, REASONS, Run, counted
from claude_pieces import check_pieces

FIELDS = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
RELEASE = re.compile(r"\d+\.\d+\.\d+")
EVENTS = Path(__file__).parents[1] / "recordings" / "events"


def main(folders: list[str]) -> int:
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.jsonl"))]
    if not files:
        print("there is no golden file to read", file=sys.stderr)
        return 1
    for file in files:
        try:
            judge_file(file)
        except Exception as error:
            print(f"{file}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    print(f"claude-agent-sdk read {len(files)} files, and all their values are right")
    return 0


def judge_file(file: Path) -> None:
    events = [json.loads(line) for line in (EVENTS / file.name).read_text("utf-8").splitlines()]
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    judge(lines, Run(events), partial=file.parent.name.endswith("partial"))


def judge(lines: list[Any], run: Run, *, partial: bool) -> None:
    messages = [parse_message(line) for line in lines]
    same("lines that are not understood", messages.count(None), 0)
    check_lines(lines, run)
    check_start(messages[0], run)
    results = [number for number, message in enumerate(messages) if isinstance(message, ResultMessage)]
    same("results", results, [len(messages) - 1])
    check_words(messages, run)
    check_tools(messages, run)
    check_order(messages)
    check_usage(messages, run)
    check_refusal(messages, run)
    check_end(messages[-1], run)
    pieces = [message for message in messages if isinstance(message, StreamEvent)]
    same("whether there are pieces", bool(pieces), partial and any(spoken(messages)))
    if partial:
        check_pieces(messages, StreamEvent, AssistantMessage)


def check_lines(lines: list[Any], run: Run) -> None:
    """What every line has, whatever it is."""
    same("the sessions", {line["session_id"] for line in lines}, {run.finished["session_id"]})
    same("how many ids there are", len({UUID(line["uuid"]) for line in lines}), len(lines))
    same("releases", [line for line in lines[:1] if not RELEASE.fullmatch(line["claude_code_version"])], [])
    for line in lines:
        if line["type"] in ("assistant", "user", "stream_event"):
            same("whether a parent is told", "parent_tool_use_id" in line, True)
        if line["type"] == "user":
            same("who a result is from", line["message"]["role"], "user")
        message = line.get("event", line).get("message", {})
        if line["type"] != "user" and message:
            check_message(message, run, is_error="error" in line)


def check_message(message: Any, run: Run, *, is_error: bool) -> None:
    """A message of the model as its API gives it, which the SDK reads in part only."""
    same("the fields of a message", set(message), FIELDS)
    same("what a message is", (message["type"], message["role"]), ("message", "assistant"))
    same("the id of a message", message["id"].startswith("msg_"), True)
    ending = (message["stop_reason"], message["stop_sequence"])
    if is_error:
        same("how a refusal ends", ending, ("stop_sequence", ""))
    else:
        same("the stop sequence", ending[1], None)
        models = {event["model"] for event in run.of("tokens_used")} | {run.started["model"]}
        same("whether that model was there", message["model"] in models, True)


def check_start(message: Any, run: Run) -> None:
    same("the first line", (type(message), message.subtype), (SystemMessage, "init"))
    told = [message.data[name] for name in ("cwd", "model", "permissionMode", "apiKeySource", "output_style")]
    mode = MODES[run.started["approval"]]
    same("the start", told, [run.started["cwd"], run.started["model"], mode, "none", "default"])
    lists = ("tools", "mcp_servers", "slash_commands", "agents", "skills", "plugins")
    same("what is not known", [message.data[name] for name in lists], [[]] * len(lists))


def check_words(messages: list[Any], run: Run) -> None:
    said = "".join(block.text for block in blocks(messages, TextBlock))
    same("the text", said, run.finished["text"])
    same("the thoughts", [block.thinking for block in blocks(messages, ThinkingBlock)], run.thoughts)
    same("signatures", {block.signature for block in blocks(messages, ThinkingBlock)} - {""}, set())
    own = [message.parent_tool_use_id is None for message in spoken(messages)]
    same("messages without a word", [m.message_id for m in spoken(messages) if not m.content], [])
    ids = [message.message_id for message in messages if isinstance(message, AssistantMessage)]
    same("how many messages there are", (len(set(ids)), bool(own) and not own[0]), (len(ids), False))


def check_tools(messages: list[Any], run: Run) -> None:
    uses = [(block.id, block.name, block.input) for block in blocks(messages, ToolUseBlock)]
    same("the calls", uses, run.calls)
    told = [
        (block.tool_use_id, block.content, block.is_error, message.parent_tool_use_id)
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
    ]
    same("the results", told, run.results)
    asides = [message.tool_use_result for message in messages if isinstance(message, UserMessage)]
    same("what the model was not told", asides, run.asides)
    same("the denials", messages[-1].permission_denials, run.denials)
    parents = {event["id"]: event["parent"] for event in run.of("tool_started")}
    owners = [
        (block.id, message.parent_tool_use_id)
        for message in spoken(messages)
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    same("whose calls they are", owners, list(parents.items()))


def check_order(messages: list[Any]) -> None:
    """Each result stands behind its call and before the next message; what a subagent does behind the call of it."""
    called: set[str | None] = {None}
    running: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage | StreamEvent) and message.parent_tool_use_id is None:
            same("calls that have no result yet", running, set())
        if isinstance(message, AssistantMessage | UserMessage):
            same("a line before its agent's call", message.parent_tool_use_id in called, True)
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    called.add(block.id)
                    running |= {block.id} if message.parent_tool_use_id is None else set()
                elif isinstance(block, ToolResultBlock):
                    same("a result before its call", block.tool_use_id in called, True)
                    running.discard(block.tool_use_id)


def check_usage(messages: list[Any], run: Run) -> None:
    """Each answer has its own tokens, and the last line those of the whole run."""
    used = run.finished["usage"]
    # Tokens of an interrupted answer are unknown: no total is told then.
    is_known = used is not None and not used.get("unknown")
    same("the usage", messages[-1].usage, counted(used) if is_known else None)
    same("the models", messages[-1].model_usage, None if used is None else run.models)
    own = [m for m in spoken(messages) if m.parent_tool_use_id is None]
    unknown: tuple[str, dict[str, int]] = (run.started["model"], {})
    expected = run.requests[: len(own)] + [unknown] * (len(own) - len(run.requests))
    same("the tokens of each message", [(m.model, m.usage) for m in own], expected)
    others = [m.usage for m in spoken(messages) if m.parent_tool_use_id is not None]
    told = [counted(event) for event in run.of("tokens_used") if event["role"] == "subagent"]
    same("the tokens of subagents", others, told[: len(others)])
    over = run.finished["outcome"] == "success"
    reasons = [
        "tool_use"
        if any(isinstance(block, ToolUseBlock) for block in m.content)
        else "end_turn"
        if over
        else None
        for m in spoken(messages)
    ]
    same("why each message ended", [message.stop_reason for message in spoken(messages)], reasons)


def check_refusal(messages: list[Any], run: Run) -> None:
    """An API failure in the agent's name, before the last line, and nowhere else."""
    found = [m for m in messages if isinstance(m, AssistantMessage) and m.error]
    told = [(m.error, m.model, [block.text for block in m.content], m.usage) for m in found]
    expected: list[Any] = [(run.refusal, "<synthetic>", [run.finished["reason"]], {})] if run.refusal else []
    same("what the API refused", told, expected)
    same("where it stands", found, messages[-2:-1] if run.refusal else [])


def check_end(result: Any, run: Run) -> None:
    finished, failure = run.finished, run.finished["failure"] or {}
    succeeded = finished["outcome"] == "success"
    same("is_error", result.is_error, not succeeded)
    same("the subtype", result.subtype, run.subtype)
    same("the duration", result.duration_ms, finished["duration_ms"])
    same("the API's time", 0 < result.duration_api_ms <= result.duration_ms, True)
    same("the turns", result.num_turns, finished["turn"])
    same("the cost", result.total_cost_usd, (finished.get("cost") or {}).get("usd"))
    reasons = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "SAFETY": "refusal"}
    stopped = reasons.get(finished.get("finish_reason") or "STOP") if succeeded else None
    same("how it stopped", result.stop_reason, stopped)
    same("the HTTP status", result.api_error_status, failure.get("http_status") if run.refusal else None)
    same("the terminal reason", getattr(result, "terminal_reason", None), REASONS.get(finished["outcome"]))
    if succeeded or run.refusal:
        text = finished["answer"] if succeeded else finished["reason"]
        same("the answer", (result.result, result.errors), (text, None))
    else:
        same("the reason", (result.result, result.errors), (None, [finished["reason"]]))


def spoken(messages: list[Any]) -> list[Any]:
    """What models have said: not what an API failure says in the agent's name."""
    return [m for m in messages if isinstance(m, AssistantMessage) and not m.error]


def blocks(messages: list[Any], kind: type) -> Iterator[Any]:
    for message in spoken(messages):
        yield from (block for block in message.content if isinstance(block, kind))


def same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{what}: {found!r}, and not {expected!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
