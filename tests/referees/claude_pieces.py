"""Check that the streamed pieces of each message add up to the complete message."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["check_pieces"]

_DELTA_FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}
_KINDS = {"text": "TextBlock", "thinking": "ThinkingBlock", "tool_use": "ToolUseBlock"}


def check_pieces(messages: list[Any], stream_event: Any, whole: Any) -> None:
    """Check that pieces precede each main message and add up to it. Other messages have none."""
    draft: dict[str, Any] | None = None
    for message in messages:
        if isinstance(message, stream_event):
            draft = _add_piece(draft, message)
        elif draft is not None and not draft["open"]:
            _check_whole(message, draft)
            draft = None
        elif draft is not None and getattr(message, "parent_tool_use_id", None) is None:
            raise ValueError(f"another line between the pieces of {draft['id']}")
        elif isinstance(message, whole) and not message.error and message.parent_tool_use_id is None:
            raise ValueError(f"message {message.message_id} has no pieces before it")
    if draft is not None:
        raise ValueError(f"message {draft['id']} is missing after its pieces")


def _add_piece(draft: dict[str, Any] | None, piece: Any) -> dict[str, Any]:
    event = piece.event
    if piece.parent_tool_use_id is not None:
        raise ValueError("a subagent's message has pieces")
    if event["type"] == "message_start":
        first = event["message"]
        if draft is not None or first["content"] or first["stop_reason"] is not None:
            raise ValueError(f"invalid start of a message: {event}")
        return {"id": first["id"], "first": first["usage"], "blocks": [], "open": True, "block": None}
    if draft is None or not draft["open"]:
        raise ValueError(f"a piece outside a message: {event}")
    if event["type"] in ("content_block_start", "content_block_delta", "content_block_stop"):
        _add_to_block(draft, event)
    elif event["type"] == "message_delta" and draft["block"] is None:
        if event["delta"] != {"stop_reason": event["delta"]["stop_reason"], "stop_sequence": None}:
            raise ValueError(f"invalid end of a message: {event}")
        draft |= {"stop": event["delta"]["stop_reason"], "usage": event["usage"]}
    elif event["type"] == "message_stop" and "stop" in draft:
        draft["open"] = False
    else:
        raise ValueError(f"unexpected piece: {event}")
    return draft


def _add_to_block(draft: dict[str, Any], event: dict[str, Any]) -> None:
    is_start = event["type"] == "content_block_start"
    if event["index"] != len(draft["blocks"]) - (0 if is_start else 1) or is_start != (
        draft["block"] is None
    ):
        raise ValueError(f"a block at the wrong position: {event}")
    if is_start:
        block = dict(event["content_block"])
        if block["type"] == "tool_use":
            block["input"] = "" if block["input"] == {} else block["input"]
        draft["block"] = block
        draft["blocks"].append(block)
    elif event["type"] == "content_block_delta":
        field, source = _DELTA_FIELDS[event["delta"]["type"]]
        draft["block"][field] += event["delta"][source]
    else:
        draft["block"] = None


def _check_whole(message: Any, draft: dict[str, Any]) -> None:
    blocks = [(_KINDS[block["type"]], _fields(block)) for block in draft["blocks"]]
    whole = [(type(block).__name__, vars(block)) for block in message.content]
    complete = (message.message_id, whole, message.stop_reason, message.usage)
    assembled = (draft["id"], blocks, draft["stop"], draft["usage"])
    if complete != assembled:
        raise ValueError(f"the message is {complete!r}, but its pieces add up to {assembled!r}")
    if draft["first"] not in ({}, message.usage):
        raise ValueError(
            f"the first piece has the usage {draft['first']}, but the message has {message.usage}"
        )


def _fields(block: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in block.items() if name != "type"}
    return fields | ({"input": json.loads(fields["input"])} if block["type"] == "tool_use" else {})
