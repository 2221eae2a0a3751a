"""Legacy session files (one JSON object), read message by message."""

from __future__ import annotations

import json

import pytest

from geminids.gemini.protocol.journal.records import decode_legacy_message
from geminids.gemini.protocol.journal.replay import blocks, replay, skeleton

_MESSAGES = [{"id": "a", "content": "    {\n    }"}, {"id": "b", "nested": {"messages": [{"id": "no"}]}}]
_WHOLE = json.dumps({"sessionId": "s", "messages": _MESSAGES, "more": [{"id": "c"}]}, indent=2).encode()


def test_messages_and_the_rest_of_the_file() -> None:
    """`blocks` separates the messages from the rest of the file.

    An object that only looks like a message is not one.
    """
    all_blocks = list(blocks(_WHOLE.splitlines(keepends=True)))
    messages = [block for block in all_blocks if block.is_message]
    assert [json.loads(block.text) for block in messages] == _MESSAGES
    assert all(_WHOLE[block.offset :].startswith(block.text) for block in messages)
    rest = b"".join(b"null" if block.is_message else block.text for block in all_blocks)
    assert skeleton(rest) == {"sessionId": "s", "messages": [None, None], "more": [{"id": "c"}]}


def test_a_cut_off_message() -> None:
    """A message that is cut off is not returned; the messages before it are."""
    cut = _WHOLE[: _WHOLE.index(b'"nested"')]
    all_blocks = list(blocks(cut.splitlines(keepends=True)))
    assert [json.loads(block.text)["id"] for block in all_blocks if block.is_message] == ["a"]
    assert all_blocks[-1].text.endswith(b'"b",\n      ')


def test_invalid_skeletons() -> None:
    """`skeleton` is None for broken JSON, other JSON and an object without a session."""
    assert [skeleton(text) for text in (b"{", b"[]", b"{}", b'{"sessionId":')] == [None] * 4


@pytest.mark.parametrize("stored_id", [5, None, ["a"], {}])
def test_an_id_of_the_wrong_type(stored_id: object) -> None:
    """A message whose id is not a string gets an empty id, or is left out of the conversation."""
    message = {"id": stored_id, "type": "user", "content": "hello"}
    decoded = decode_legacy_message(json.dumps(message).encode())
    assert decoded is not None
    assert (decoded.id, decoded.text) == ("", "hello")
    conversation = replay([json.dumps({"sessionId": "s", "messages": [message]}).encode()])
    assert [kept.text for kept in conversation.messages if kept.id] == []
