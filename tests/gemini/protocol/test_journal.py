"""Records of session files, as the CLI writes them and damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gemini.protocol.journal.records import (
    Header,
    Rewind,
    Set,
    StoredMessage,
    StoredThought,
    StoredTokens,
    decode_message,
    decode_record,
)
from recordings import VERSIONS, all_files, recorded

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = (
    "id type timestamp content displayContent toolCalls thoughts tokens model $set $rewindTo sessionId projectHash"
    " messages $raw"
)
_RECORDS = st.dictionaries(st.sampled_from(_FIELDS.split()), _JSON, max_size=8)


def decode_stored_message(**fields: Any) -> StoredMessage:
    record = decode_record(json.dumps({"id": "m1", **fields}).encode())
    assert isinstance(record, StoredMessage)
    return record


@given(st.binary(max_size=60) | _RECORDS.map(lambda record: json.dumps(record).encode()))
@example(b'{"id":"a","content":' + b"[" * 3000)
@example(b'{"id":"a","content":"\\ud800"}')
@example(b'{"id":"a","tokens":{"input":' + b"1" * 5000 + b"}}")
@example(
    b'{"id":"a","toolCalls":[{"id":[[1]],"args":3,"result":{}}],"thoughts":[1,{"subject":2}],"tokens":[]}'
)
@example(b'{"sessionId":"a","projectHash":"b","directories":[1],"messages":[{"id":1},2,{"id":"x"}]}')
def test_no_line_raises(line: bytes) -> None:
    """Any line is a record or None, and all properties of a message can be read."""
    record = decode_record(line)
    if isinstance(record, StoredMessage):
        assert isinstance(record.original, dict)
        assert isinstance(record.text, str)
        assert {record.is_prompt, record.is_injected, record.is_tool_results, record.is_resumable} <= {
            True,
            False,
        }
        assert b"\n" not in record.raw


def test_a_message_of_every_field() -> None:
    """All fields of a stored message are decoded, and the original is kept."""
    decoded = decode_stored_message(
        type="gemini",
        timestamp="t",
        content="hello",
        displayContent="hi",
        thoughts=[{"subject": "s", "description": "d", "timestamp": "u"}],
        tokens={"input": 6, "output": 2, "cached": 3, "thoughts": 4, "tool": 1, "total": 13},
        model="gemini-3-flash",
        toolCalls=[
            {
                "id": "c1",
                "name": "read_file",
                "args": {"file_path": "a"},
                "result": [{"functionResponse": {}}],
                "status": "success",
                "timestamp": "v",
                "agentId": "agent",
                "displayName": "ReadFile",
                "description": "a",
                "resultDisplay": {"fileDiff": "+"},
                "renderOutputAsMarkdown": True,
            }
        ],
    )
    call = decoded.tool_calls[0]
    assert (decoded.type, decoded.timestamp, decoded.content, decoded.display_content) == (
        "gemini",
        "t",
        "hello",
        "hi",
    )
    assert (decoded.thoughts, decoded.tokens) == (
        [StoredThought("s", "d", "u")],
        StoredTokens(6, 2, 3, 4, 1, 13),
    )
    assert (call.agent_id, call.display_name, call.result_display) == ("agent", "ReadFile", {"fileDiff": "+"})
    assert decoded.original["toolCalls"][0]["renderOutputAsMarkdown"] is True


def test_a_field_of_a_wrong_type() -> None:
    """A field of a wrong type gets its default and stays in the original.

    The other fields are decoded.
    """
    decoded = decode_stored_message(
        type="gemini",
        thoughts=None,
        tokens={"input": 5.0, "output": "many"},
        model=3,
        toolCalls=[{"name": "glob", "args": "?"}],
    )
    assert (decoded.thoughts, decoded.tokens, decoded.model) == ([], StoredTokens(input=5), None)
    assert (decoded.tool_calls[0].name, decoded.tool_calls[0].args) == ("glob", {})
    assert decoded.original["model"] == 3


def test_precedence_of_record_kinds() -> None:
    """If a line has the fields of several records, the order is rewind, message, update, header, as
    in the CLI.
    """
    everything = {"$rewindTo": "x", "id": "y", "$set": {}, "sessionId": "s", "projectHash": "p"}
    kinds = []
    while everything:
        kinds.append(type(decode_record(json.dumps(everything).encode())))
        del everything[next(iter(everything))]
    assert kinds == [Rewind, StoredMessage, Set, Header, type(None)]


def test_a_quoted_record_is_text() -> None:
    """A message that quotes a record in its text or arguments stays a message."""
    decoded = decode_stored_message(type="user", content='{"$rewindTo":"x"} and {"$set":{}}')
    assert decoded.is_prompt
    nested = decode_stored_message(type="gemini", toolCalls=[{"id": "c", "args": {"$rewindTo": "x"}}])
    assert nested.tool_calls[0].args == {"$rewindTo": "x"}


def test_a_checkpoint_has_its_messages() -> None:
    """`$set.messages` are decoded with their originals; an entry without an id is dropped."""
    line = b'{"$set":{"messages":[{"id":"a","type":"user","content":"x","new":1},{"id":3},7],"summary":null}}'
    record = decode_record(line)
    assert isinstance(record, Set)
    assert record.fields == {"summary": None}
    assert [decoded.original for decoded in record.messages or ()] == [
        {"id": "a", "type": "user", "content": "x", "new": 1}
    ]
    assert decode_record(b'{"$set":{"lastUpdated":"t"}}') == Set({"lastUpdated": "t"})


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param(b'\xef\xbb\xbf{"id":"a","content":"x"}', "x", id="byte order mark"),
        pytest.param(b'  {"id":"a","content":"x"} \r\n', "x", id="blanks"),
        pytest.param(b'{"id":"a","content":"\xff"}', "\ufffd", id="bad UTF-8"),
        pytest.param(b'{"id":"a","content":"a\\ud83d"}', "a\ufffd", id="half a pair"),
        pytest.param(b'{"id":"a","content":"x","n":1e999}', "x", id="a number too big"),
        pytest.param('{"id":"a","content":"a\u2028b"}'.encode(), "a\u2028b", id="a separator in the text"),
    ],
)
def test_odd_but_valid_lines(line: bytes, text: str) -> None:
    """Every line that JavaScript's JSON.parse accepts is decoded.

    An invalid character is replaced.
    """
    decoded = decode_record(line)
    assert isinstance(decoded, StoredMessage)
    assert (decoded.id, decoded.text, decoded.original["id"]) == ("a", text, "a")
    msgspec.json.encode(decoded.original)


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"null", b'{"id":1}', b'{"id":"a"', b'{"id":"a","n":NaN}', b'{"sessionId":"a"}', b'"id"'],
)
def test_other_lines_are_no_records(line: bytes) -> None:
    """Other JSON, broken JSON and an incomplete header are not records."""
    assert decode_record(line) is None


def test_a_message_on_many_lines() -> None:
    """A message on several lines is decoded, and its original is stored on one line."""
    decoded = decode_message(b'{\n  "id": "a",\n  "content": "x"\n}\n')
    assert decoded is not None
    assert (decoded.text, decoded.raw) == ("x", b'{"id":"a","content":"x"}')
    assert decode_message(b'{"content": "x"}') is None


_ANSWER = {"functionResponse": {"id": "c", "name": "glob", "response": {"output": ""}}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hello", "prompt resumable"),
        ([{"text": "hel"}, {"text": "lo"}], "prompt resumable"),
        ("/help", "prompt"),
        ("", "prompt"),
        ([{"inlineData": {"mimeType": "image/png", "data": ""}}], "prompt resumable"),
        ([{"text": "<session_context>\nx"}], "injected"),
        ("<hook_context>x</hook_context>", "injected"),
        ("<hook_context>x</hook_context>\n\nhello", "prompt"),
        ([_ANSWER, _ANSWER], "tool_results resumable"),
        (None, "prompt"),
    ],
)
def test_kinds_of_user_messages(content: Any, expected: str) -> None:
    """A user message is a prompt, injected by the CLI, or tool results.

    `is_resumable` follows the CLI's rule.
    """
    decoded = decode_stored_message(type="user", content=content)
    names = ("prompt", "injected", "tool_results", "resumable")
    assert [name for name in names if getattr(decoded, f"is_{name}")] == expected.split()


@pytest.mark.parametrize("kind", ["gemini", "info", "warning", "error", "new"])
def test_only_a_user_message_can_be_a_prompt(kind: str) -> None:
    """A message of another type is never a prompt. Of these types, only `gemini` is resumable."""
    decoded = decode_stored_message(type=kind, content="<session_context>")
    assert not (decoded.is_prompt or decoded.is_injected or decoded.is_tool_results)
    assert decoded.is_resumable == (kind == "gemini")


def test_thoughts_among_the_parts_are_no_text() -> None:
    """Thoughts among the parts of a message are not part of its text."""
    decoded = decode_stored_message(
        type="gemini", content=[{"text": "**S** d", "thought": True}, {"text": "hi"}]
    )
    assert decoded.text == "hi"


def test_every_recorded_line_is_a_record() -> None:
    """Every line that a real release wrote is a record, and its original equals the line."""
    for file in all_files():
        if file.suffix == ".json":
            assert isinstance(decode_record(file.read_bytes()), Header), file
            continue
        for line in file.read_bytes().splitlines():
            record = decode_record(line)
            assert record is not None, file
            if isinstance(record, StoredMessage):
                assert record.original == json.loads(line), file


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tokens_of_a_real_session(version: str) -> None:
    """The last answer of a recorded session has the tokens that the model reported."""
    _, journal = recorded(version, "Read and list.")
    last = journal.messages[-1]
    assert (last.text, last.tokens) == ("The same.", StoredTokens(100, 7, 40, 5, 0, 112))
