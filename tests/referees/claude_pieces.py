"""Pieces of messages, put together as a reader of Claude's API does it, and held against the whole messages."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["check_pieces"]

_GROWS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}
_KINDS = {"text": "TextBlock", "thinking": "ThinkingBlock", "tool_use": "ToolUseBlock"}


def check_pieces(messages: list[Any], stream_event: Any, whole: Any) -> None:
    """Every message of the agent itself comes in pieces first, which make the same message; no other does."""
    made: dict[str, Any] | None = None
    for message in messages:
        if isinstance(message, stream_event):
            made = _grown(made, message)
        elif made is not None and not made["open"]:
            _check_whole(message, made)
            made = None
        elif made is not None and getattr(message, "parent_tool_use_id", None) is None:
            raise ValueError(f"a line among the pieces of {made['id']}")
        elif isinstance(message, whole) and not message.error and message.parent_tool_use_id is None:
            raise ValueError(f"no pieces before {message.message_id}")
    if made is not None:
        raise ValueError(f"the pieces of {made['id']} were not followed by the message")


def _grown(made: dict[str, Any] | None, piece: Any) -> dict[str, Any]:
    event = piece.event
    if piece.parent_tool_use_id is not None:
        raise ValueError("a subagent's message came in pieces")
    if event["type"] == "message_start":
        first = event["message"]
        if made is not None or first["content"] or first["stop_reason"] is not None:
            raise ValueError(f"a message that does not begin: {event}")
        return {"id": first["id"], "first": first["usage"], "blocks": [], "open": True, "block": None}
    if made is None or not made["open"]:
        raise ValueError(f"a piece of no message: {event}")
    if event["type"] in ("content_block_start", "content_block_delta", "content_block_stop"):
        _grow_block(made, event)
    elif event["type"] == "message_delta" and made["block"] is None:
        if event["delta"] != {"stop_reason": event["delta"]["stop_reason"], "stop_sequence": None}:
            raise ValueError(f"an odd end of a message: {event}")
        made |= {"stop": event["delta"]["stop_reason"], "usage": event["usage"]}
    elif event["type"] == "message_stop" and "stop" in made:
        made["open"] = False
    else:
        raise ValueError(f"an odd piece: {event}")
    return made


def _grow_block(made: dict[str, Any], event: dict[str, Any]) -> None:
    begins = event["type"] == "content_block_start"
    if event["index"] != len(made["blocks"]) - (0 if begins else 1) or begins != (made["block"] is None):
        raise ValueError(f"a block out of its place: {event}")
    if begins:
        block = dict(event["content_block"])
        if block["type"] == "tool_use":
            block["input"] = "" if block["input"] == {} else block["input"]
        made["block"] = block
        made["blocks"].append(block)
    elif event["type"] == "content_block_delta":
        grows, told = _GROWS[event["delta"]["type"]]
        made["block"][grows] += event["delta"][told]
    else:
        made["block"] = None


def _check_whole(message: Any, made: dict[str, Any]) -> None:
    blocks = [(_KINDS[block["type"]], _fields(block)) for block in made["blocks"]]
    whole = [(type(block).__name__, vars(block)) for block in message.content]
    found = (message.message_id, whole, message.stop_reason, message.usage)
    expected = (made["id"], blocks, made["stop"], made["usage"])
    if found != expected:
        raise ValueError(f"the message is {found!r}, and its pieces are {expected!r}")
    if made["first"] not in ({}, message.usage):
        raise ValueError(f"the message begins with {made['first']}, and has {message.usage}")


def _fields(block: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in block.items() if name != "type"}
    return told | ({"input": json.loads(told["input"])} if block["type"] == "tool_use" else {})
