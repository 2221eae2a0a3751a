"""Legacy session files (one JSON object), read message by message."""

from __future__ import annotations

import json

from geminids.gemini.protocol.journal.replay import blocks, skeleton

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
