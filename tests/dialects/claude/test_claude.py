"""Convert stored messages to Claude's format."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.dialects import claude
from geminids.dialects.claude import Image, Source, Text, Thinking, ToolResult, ToolUse, Usage
from geminids.gemini.protocol.journal.records import StoredMessage, decode_message, decode_record
from geminids.gemini.protocol.journal.replay import replay
from geminids.gemini.protocol.journal.stream import open_journal
from recordings import FIXTURES, VERSIONS, all_files, recorded

_THOUGHT = {"subject": "Look", "description": "read first", "timestamp": "t"}
_TOKENS = {"input": 100, "output": 8, "cached": 20, "thoughts": 10, "tool": 2, "total": 120}


def tool_response(call_id: str = "t1", **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": call_id, "name": "read_file", "response": response}}


def call(call_id: str = "t1", **fields: Any) -> dict[str, Any]:
    record = {"id": call_id, "name": "read_file", "args": {"file_path": "/a"}, "status": "success"}
    return {**record, "result": [tool_response(call_id, output="x = 1")], **fields}


def message(**fields: Any) -> StoredMessage:
    decoded = decode_record(json.dumps({"id": "m2", "type": "gemini", "content": "", **fields}).encode())
    assert isinstance(decoded, StoredMessage)
    return decoded


def blocks(**fields: Any) -> Any:
    return claude.message(message(**fields)).content


def test_all_fields_of_a_message() -> None:
    """A message has thinking, then each call with its result, then text. It also has the model, the
    time, the tokens and the original message."""
    record = {
        "id": "m2",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "type": "gemini",
        "content": "x is 1.",
        "thoughts": [_THOUGHT],
        "toolCalls": [call("t1"), call("t2")],
        "tokens": _TOKENS,
        "model": "gemini-3-flash",
        "new": {"field": 1},
    }
    assert claude.as_dict(claude.message(message(**record))) == {
        "id": "m2",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look: read first"},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a"}},
            {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1", "is_error": False},
            {"type": "tool_use", "id": "t2", "name": "Read", "input": {"file_path": "/a"}},
            {"type": "tool_result", "tool_use_id": "t2", "content": "x = 1", "is_error": False},
            {"type": "text", "text": "x is 1."},
        ],
        "timestamp": 1767225600000,
        "tool": "gemini",
        "model": "gemini-3-flash",
        "usage": {
            "input_tokens": 100,
            "output_tokens": 8,
            "total_tokens": 120,
            "cache_read_tokens": 20,
            "thinking_tokens": 10,
            "tool_tokens": 2,
        },
        "_original": record,
    }


def test_missing_fields_are_left_out() -> None:
    """A prompt has neither model nor usage. A message without blocks has its plain text as
    content."""
    assert set(claude.as_dict(claude.message(message(type="user", content="hi")))) == {
        "id",
        "role",
        "content",
        "timestamp",
        "tool",
        "_original",
    }
    assert blocks(content=" \n") == " \n"
    assert blocks(content=[]) == ""
    assert blocks(content="", thoughts=[_THOUGHT]) == [Thinking("Look: read first")]


@pytest.mark.parametrize(
    ("kind", "role"),
    [("user", "user"), ("gemini", "assistant"), ("info", "assistant"), ("error", "assistant")],
)
def test_roles(kind: str, role: str) -> None:
    """Messages of the user have the role `user`, all others `assistant`."""
    assert claude.message(message(type=kind, content="x")).role == role


@pytest.mark.parametrize(
    ("fields", "text", "is_error"),
    [
        ({"result": [tool_response(output="ok")]}, "ok", False),
        ({"status": "error", "result": [tool_response(error="no such file")]}, "no such file", True),
        (
            {"status": "cancelled", "result": [tool_response(error="[Operation Cancelled]")]},
            "[Operation Cancelled]",
            True,
        ),
        ({"status": "error", "result": [tool_response(output="half")]}, "half", True),
        ({"result": [tool_response()]}, "", False),
        ({"result": [tool_response(output={"a": 1})]}, '{"a":1}', False),
        ({"result": "plain"}, "plain", False),
        ({"result": tool_response(output="one part")}, "one part", False),
        ({"result": [{"text": "no response"}]}, "", False),
        (
            {"result": [tool_response("other", output="not mine"), tool_response("t1", output="mine")]},
            "mine",
            False,
        ),
        (
            {"result": [tool_response("a", output="first"), tool_response("b", output="second")]},
            "first",
            False,
        ),
    ],
)
def test_results(fields: dict[str, Any], text: str, is_error: bool) -> None:
    """The content of a result is the output, else the error, else empty. Of several responses it is
    the call's own, else the first."""
    assert blocks(toolCalls=[call(**fields)])[1] == ToolResult("t1", text, is_error)


@pytest.mark.parametrize("result", [None, [], ""])
def test_a_call_without_a_result_has_none(result: Any) -> None:
    """A call without a result becomes a tool_use block without a tool_result block."""
    assert blocks(toolCalls=[call(result=result, status="cancelled")]) == [
        ToolUse("t1", "Read", {"file_path": "/a"})
    ]


def test_parts() -> None:
    """In a checkpoint, the parts of a message become blocks: thoughts, calls, results, text and
    images."""
    parts = [
        {"text": "**Look** read first", "thought": True},
        {"text": "I "},
        {"text": "read."},
        {"functionCall": {"id": "t1", "name": "read_file", "args": {"file_path": "/a"}}},
    ]
    assert blocks(content=parts) == [
        Thinking("Look: read first"),
        ToolUse("t1", "Read", {"file_path": "/a"}),
        Text("I read."),
    ]
    # The message repeats its thoughts and calls outside of the parts.
    assert blocks(content=parts, thoughts=[_THOUGHT], toolCalls=[call()]) == [
        Thinking("Look: read first"),
        ToolUse("t1", "Read", {"file_path": "/a"}),
        ToolResult("t1", "x = 1", False),
        Text("I read."),
    ]
    assert blocks(type="user", content=[tool_response(error="no")]) == [ToolResult("t1", "no", True)]
    assert blocks(type="user", content={"text": "one part"}) == [Text("one part")]
    image = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    video = {"inlineData": {"mimeType": "video/mp4", "data": "AA=="}}
    assert blocks(type="user", content=[image, {"text": "what?"}, video, "odd", 7]) == [
        Text("what?odd"),
        Image(Source("AA==", "image/png")),
    ]


def test_user_messages_written_by_the_cli_are_left_out() -> None:
    """User messages with the CLI's context, or with a result that its call already has, are left
    out. A result without such a call is kept once."""
    stored = [
        message(id="a", type="user", content=[{"text": "<session_context>x"}]),
        message(id="b", type="user", content="hi"),
        message(id="c", toolCalls=[call("t1")]),
        message(id="d", type="user", content=[tool_response("t1", output="x = 1")]),
        message(id="e", content=[{"functionCall": {"id": "t2", "name": "glob", "args": {}}}]),
        message(id="f", type="user", content=[tool_response("t2", output="y")]),
        message(id="g", type="user", content=[tool_response("t2", output="y")]),
        message(id="h", type="info", content="note"),
        message(id="i", type="user", content=tool_response("t3", output="z")),
        message(id="j", type="user", content=tool_response("t3", output="z")),
    ]
    assert [converted.id for converted in claude.messages(stored)] == list("bcefhi")
    assert [converted.id for converted in claude.messages(stored, everything=True)] == list("abcdefghij")


def test_conversation_journal_and_messages_are_equal() -> None:
    """A conversation, a journal and plain messages give the same output."""
    file, conversation = recorded("0.61.0", "Read and list.")
    expected = [claude.as_dict(one) for one in claude.messages(conversation)]
    assert expected
    for other in (open_journal(file), open_journal(file).messages, conversation.messages):
        assert [claude.as_dict(one) for one in claude.messages(other)] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_real_sessions(version: str) -> None:
    """A recorded session of each release gives its thoughts, texts, calls and results."""
    _, conversation = recorded(version, "What is x?")
    content = [block for one in claude.messages(conversation) for block in one.content]
    assert [block.name for block in content if isinstance(block, ToolUse)] == [
        "Read",
        "Write",
        "Bash",
        "Read",
    ]
    assert (
        next(block.thinking for block in content if isinstance(block, Thinking))
        == "Look first: I read the file."
    )
    results = [block for block in content if isinstance(block, ToolResult)]
    assert [result.is_error for result in results] == [False, False, False, True]
    assert results[0].content == "x = 1\n"
    assert "Exit Code: 3" in results[2].content
    assert [block.text for block in content if isinstance(block, Text)] == [
        "What is x?",
        "Let me read.",
        "x is 1 — that's it.",
        "And now?",
        "Still 1.",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_real_parallel_calls_have_each_its_own_result(version: str) -> None:
    """Each of two parallel calls has its own result, although 0.61 writes both results to each call
    when the session is resumed."""
    _, conversation = recorded(version, "Read and list.")
    content = [block for one in claude.messages(conversation) for block in one.content]
    first, second = (block for block in content if isinstance(block, ToolResult))
    assert first.content == "x = 1\n"
    assert "a.py" in second.content


def test_json_lines_of_all_recordings() -> None:
    """Each message is one line of JSON, and its original is the message in the file."""
    for file in all_files():
        conversation = replay(file.read_bytes().split(b"\n"))
        for source, one in zip(
            conversation.messages, claude.messages(conversation, everything=True), strict=True
        ):
            line = msgspec.json.encode(one)
            assert b"\n" not in line, file
            assert json.loads(line)["_original"] == source.original == one._original, file


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "name", "args", "text", "thought", "functionCall", "functionResponse", "response"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["type", "timestamp", "content", "toolCalls", "thoughts", "tokens", "model"]),
        _JSON,
        max_size=6,
    )
)
def test_no_message_raises(fields: dict[str, Any]) -> None:
    """Any message can be converted and encoded."""
    stored = message(**fields)
    msgspec.json.encode(list(claude.messages([stored, stored], everything=True)))
    msgspec.json.encode(list(claude.messages([stored, stored])))


_SINGLE: dict[str, list[Any]] = {
    "gemini-with-thoughts": [Thinking, ("Glob", {"pattern": "*", "path": str}), (False, "Directory /")],
    "tool-google_web_search": [("WebSearch", {"query": str}), (False, "Web search results"), Text],
    "tool-list_directory": [Thinking, ("Glob", {"pattern": "*", "path": str}), (False, "Directory /")],
    "tool-read_file": [("Read", {"file_path": "main.py"}), (False, "def main()"), Text],
    "tool-replace": [
        Thinking,
        Thinking,
        ("Edit", {"file_path": str, "old_string": str, "new_string": str}),
        (False, "Successfully modified file"),
    ],
    "tool-result-cancelled": [
        Thinking,
        ("Bash", {"command": "python3", "description": str}),
        (True, "[Operation Cancelled]"),
        Text,
    ],
    "tool-result-error": [
        Thinking,
        ("Glob", {"pattern": "*", "path": "."}),
        (True, "Path must be absolute"),
        Text,
    ],
    "tool-result-success": [Thinking, ("Glob", {"pattern": "*", "path": str}), (False, "Directory /")],
    "tool-run_shell_command": [
        Thinking,
        ("Bash", {"command": "python3", "description": str}),
        (True, "[Operation Cancelled]"),
        Text,
    ],
    "tool-write-file": [
        Thinking,
        ("Write", {"file_path": str, "content": str}),
        (False, "Successfully"),
        Text,
    ],
}


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="needs the shared fixtures")
@pytest.mark.parametrize("name", sorted(_SINGLE))
def test_the_messages_of_0_11(name: str) -> None:
    """Each of ten messages of release 0.11 gives the expected blocks and keeps its original."""
    data = (FIXTURES / "individual" / f"{name}.json").read_bytes()
    source = decode_message(data)
    assert source is not None
    converted = claude.message(source)
    assert (converted.role, converted.tool, converted._original) == ("assistant", "gemini", json.loads(data))
    tokens = converted._original["tokens"]
    assert converted.usage == Usage(
        *(tokens[name] for name in ["input", "output", "total", "cached", "thoughts", "tool"])
    )
    for block, expected in zip(converted.content, _SINGLE[name], strict=True):
        if isinstance(block, ToolUse):
            assert block.name == expected[0]
            assert list(block.input) == list(expected[1])
            assert all(kind is str or kind in block.input[key] for key, kind in expected[1].items())
        elif isinstance(block, ToolResult):
            assert block.is_error == expected[0]
            assert expected[1] in block.content
        else:
            assert isinstance(block, expected)


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="needs the shared fixtures")
def test_the_sessions_of_0_11() -> None:
    """The sessions of release 0.11 become messages, and one of them reads a file."""
    for file in sorted(FIXTURES.glob("full/*.json")):
        converted = list(claude.messages(open_journal(file)))
        assert [one.role for one in converted[:2]] == ["user", "assistant"]
        if "9c9a14e1" in file.name:
            assert len(converted) == 3
            assert [block.name for block in converted[1].content if isinstance(block, ToolUse)] == ["Read"]
