"""Legacy files piece by piece."""

from __future__ import annotations

import json

from geminids.gemini.protocol.journal.replay import blocks, skeleton

_MESSAGES = [{"id": "a", "content": "    {\n    }"}, {"id": "b", "nested": {"messages": [{"id": "no"}]}}]
_WHOLE = json.dumps({"sessionId": "s", "messages": _MESSAGES, "more": [{"id": "c"}]}, indent=2).encode()


def test_messages_and_what_stands_around_them() -> None:
    """Each message is a piece at its place; what looks like one elsewhere is none."""
    found = list(blocks(_WHOLE.splitlines(keepends=True)))
    messages = [block for block in found if block.is_message]
    assert [json.loads(block.text) for block in messages] == _MESSAGES
    assert all(_WHOLE[block.offset :].startswith(block.text) for block in messages)
    around = b"".join(b"null" if block.is_message else block.text for block in found)
    assert skeleton(around) == {"sessionId": "s", "messages": [None, None], "more": [{"id": "c"}]}


def test_a_message_that_is_cut_off_is_none() -> None:
    """What came before it is whole."""
    cut = _WHOLE[: _WHOLE.index(b'"nested"')]
    found = list(blocks(cut.splitlines(keepends=True)))
    assert [json.loads(block.text)["id"] for block in found if block.is_message] == ["a"]
    assert found[-1].text.endswith(b'"b",\n      ')


def test_what_is_no_skeleton() -> None:
    """Broken JSON, other JSON, and an object without a session."""
    assert [skeleton(text) for text in (b"{", b"[]", b"{}", b'{"sessionId":')] == [None] * 4
