"""Records of session files, as the CLI writes them and as they may come damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gemini.protocol.journal.records import (
    Header,
    Message,
    Rewind,
    Set,
    Thought,
    Tokens,
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


def message(**fields: Any) -> Message:
    found = decode_record(json.dumps({"id": "m1", **fields}).encode())
    assert isinstance(found, Message)
    return found


@given(st.binary(max_size=60) | _RECORDS.map(lambda record: json.dumps(record).encode()))
@example(b'{"id":"a","content":' + b"[" * 3000)
@example(b'{"id":"a","content":"\\ud800"}')
@example(b'{"id":"a","tokens":{"input":' + b"1" * 5000 + b"}}")
@example(
    b'{"id":"a","toolCalls":[{"id":[[1]],"args":3,"result":{}}],"thoughts":[1,{"subject":2}],"tokens":[]}'
)
@example(b'{"sessionId":"a","projectHash":"b","directories":[1],"messages":[{"id":1},2,{"id":"x"}]}')
def test_nothing_raises(line: bytes) -> None:
    """Whatever a line holds, it is a record or it is none; and a message's properties can all be asked for."""
    record = decode_record(line)
    if isinstance(record, Message):
        assert isinstance(record.original, dict)
        assert isinstance(record.text, str)
        assert {record.is_prompt, record.is_injected, record.is_tool_results, record.is_resumable} <= {
            True,
            False,
        }
        assert b"\n" not in record.raw


def test_a_message_of_every_field() -> None:
    """All that the CLI writes is there, under our names."""
    told = message(
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
    call = told.tool_calls[0]
    assert (told.type, told.timestamp, told.content, told.display_content) == ("gemini", "t", "hello", "hi")
    assert (told.thoughts, told.tokens) == ([Thought("s", "d", "u")], Tokens(6, 2, 3, 4, 1, 13))
    assert (call.agent_id, call.display_name, call.result_display) == ("agent", "ReadFile", {"fileDiff": "+"})
    assert told.original["toolCalls"][0]["renderOutputAsMarkdown"] is True


def test_what_is_of_another_type_costs_that_field_alone() -> None:
    """A field that cannot be read is left at its default, and stays in the original."""
    told = message(
        type="gemini",
        thoughts=None,
        tokens={"input": 5.0, "output": "many"},
        model=3,
        toolCalls=[{"name": "glob", "args": "?"}],
    )
    assert (told.thoughts, told.tokens, told.model) == ([], Tokens(input=5), None)
    assert (told.tool_calls[0].name, told.tool_calls[0].args) == ("glob", {})
    assert told.original["model"] == 3


def test_the_order_of_the_kinds() -> None:
    """A rewind before a message, a message before an update, an update before a header: as the CLI asks."""
    everything = {"$rewindTo": "x", "id": "y", "$set": {}, "sessionId": "s", "projectHash": "p"}
    kinds = []
    while everything:
        kinds.append(type(decode_record(json.dumps(everything).encode())))
        del everything[next(iter(everything))]
    assert kinds == [Rewind, Message, Set, Header, type(None)]


def test_the_names_of_records_within_a_text_are_text() -> None:
    """A message that quotes a journal stays a message."""
    told = message(type="user", content='{"$rewindTo":"x"} and {"$set":{}}')
    assert told.is_prompt
    nested = message(type="gemini", toolCalls=[{"id": "c", "args": {"$rewindTo": "x"}}])
    assert nested.tool_calls[0].args == {"$rewindTo": "x"}


def test_a_checkpoint_has_its_messages() -> None:
    """`$set.messages` are messages with their originals; what has no id is none."""
    line = b'{"$set":{"messages":[{"id":"a","type":"user","content":"x","new":1},{"id":3},7],"summary":null}}'
    record = decode_record(line)
    assert isinstance(record, Set)
    assert record.fields == {"summary": None}
    assert [told.original for told in record.messages or ()] == [
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
def test_what_json_parse_reads_is_read(line: bytes, text: str) -> None:
    """A character that is no good costs that character."""
    told = decode_record(line)
    assert isinstance(told, Message)
    assert (told.id, told.text, told.original["id"]) == ("a", text, "a")
    msgspec.json.encode(told.original)


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"null", b'{"id":1}', b'{"id":"a"', b'{"id":"a","n":NaN}', b'{"sessionId":"a"}', b'"id"'],
)
def test_what_is_no_record(line: bytes) -> None:
    """Other JSON, broken JSON and halves of a header are no records."""
    assert decode_record(line) is None


def test_a_message_on_many_lines() -> None:
    """It is read as well, and its original stands on one."""
    told = decode_message(b'{\n  "id": "a",\n  "content": "x"\n}\n')
    assert told is not None
    assert (told.text, told.raw) == ("x", b'{"id":"a","content":"x"}')
    assert decode_message(b'{"content": "x"}') is None


_ANSWER = {"functionResponse": {"id": "c", "name": "glob", "response": {"output": ""}}}


@pytest.mark.parametrize(
    ("content", "what"),
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
def test_whose_words_a_user_message_holds(content: Any, what: str) -> None:
    """The user's own are a prompt; the CLI's are not. Resumable is what the CLI calls so."""
    told = message(type="user", content=content)
    names = ("prompt", "injected", "tool_results", "resumable")
    assert [name for name in names if getattr(told, f"is_{name}")] == what.split()


@pytest.mark.parametrize("kind", ["gemini", "info", "warning", "error", "new"])
def test_only_a_user_message_can_be_a_prompt(kind: str) -> None:
    """Whatever another one says."""
    told = message(type=kind, content="<session_context>")
    assert not (told.is_prompt or told.is_injected or told.is_tool_results)
    assert told.is_resumable == (kind == "gemini")


def test_thoughts_among_the_parts_are_no_text() -> None:
    """A checkpoint has them there."""
    told = message(type="gemini", content=[{"text": "**S** d", "thought": True}, {"text": "hi"}])
    assert told.text == "hi"


def test_every_recorded_line_is_a_record() -> None:
    """Nothing that a real release wrote is passed over, and every original is the line itself."""
    for file in all_files():
        if file.suffix == ".json":
            assert isinstance(decode_record(file.read_bytes()), Header), file
            continue
        for line in file.read_bytes().splitlines():
            record = decode_record(line)
            assert record is not None, file
            if isinstance(record, Message):
                assert record.original == json.loads(line), file


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tokens_of_a_real_session(version: str) -> None:
    """Each answer has the tokens that the model reported, where the release keeps them."""
    _, told = recorded(version, "Read and list.")
    last = told.messages[-1]
    assert (last.text, last.tokens) == ("The same.", Tokens(100, 7, 40, 5, 0, 112))
