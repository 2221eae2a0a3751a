"""stream-json, as the CLI says it and as it may come damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gemini.protocol.stream_json import (
    ErrorLine,
    Init,
    Message,
    ResultLine,
    ToolResult,
    ToolUse,
    UnexpectedLine,
    decode_block,
    error_of,
    stats_of,
    text_of,
)

HELLO = b'{"type":"message","timestamp":"t","role":"assistant","content":"hello","delta":true}'
PLAIN = Message("assistant", "hello", "t", True)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = (
    "timestamp role content delta tool_name tool_id parameters status output error stats severity message"
)
_TYPES = ("init", "message", "tool_use", "tool_result", "error", "result", "thought")
_EVENTS = st.dictionaries(st.sampled_from(_FIELDS.split()), _JSON, max_size=6).flatmap(
    lambda fields: st.sampled_from(_TYPES).map(lambda kind: {"type": kind, **fields})
)
_LINES = st.one_of(
    st.just(HELLO),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    _EVENTS.map(lambda event: json.dumps(event).encode()),
    st.tuples(st.just(HELLO), st.integers(0, len(HELLO))).map(lambda cut: cut[0][: cut[1]]),
    st.just(b'{"type":"tool_use","tool_name":"a","tool_id":"b","parameters":' + b"[" * 3000),
)


@given(st.lists(_LINES, max_size=6).map(b"\n".join))
@example(b'{"type":"message","role":"assistant","content":"\\ud800"}')
@example(b'{"type":"tool_use","tool_name":"a","tool_id":"b","parameters":{"n":' + b"1" * 5000 + b"}}")
def test_no_bytes_raise_and_none_are_lost(block: bytes) -> None:
    """Whatever comes becomes lines, known or odd, all of which can be written as JSON again."""
    found = decode_block(block)
    msgspec.json.encode(found)
    if not found:
        assert block.replace(b"\xef\xbb\xbf", b"").decode("utf-8", "replace").strip() == ""


@given(st.lists(_LINES.filter(lambda line: b"\n" not in line), max_size=4), st.integers(0, 4))
def test_an_odd_line_leaves_its_neighbours_alone(lines: list[bytes], at: int) -> None:
    """A good line is read as itself, whatever stands around it."""
    if any(b"{" in line and _is_open(line) for line in lines):
        return  # a message whose end is missing may go on in the next line
    lines.insert(at, HELLO)
    assert PLAIN in decode_block(b"\n".join(lines) + b"\n")


def _is_open(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def test_the_six_types() -> None:
    """Every event of the CLI, with fields that we do not know let pass."""
    lines = [
        '{"type":"init","timestamp":"t","session_id":"s","model":"auto","new_field":[1]}',
        '{"type":"message","timestamp":"t","role":"user","content":"hi"}',
        '{"type":"tool_use","timestamp":"t","tool_name":"glob","tool_id":"g1","parameters":{"pattern":"*"}}',
        '{"type":"tool_result","timestamp":"t","tool_id":"g1","status":"error","error":{"type":"x","message":"y"}}',
        '{"type":"error","timestamp":"t","severity":"warning","message":"w"}',
        '{"type":"result","timestamp":"t","status":"success","stats":{"total_tokens":3}}',
    ]
    assert decode_block("\n".join(lines).encode()) == [
        Init("t", "s", "auto"),
        Message("user", "hi", "t"),
        ToolUse("glob", "g1", "t", {"pattern": "*"}),
        ToolResult("g1", "error", "t", None, {"type": "x", "message": "y"}),
        ErrorLine("warning", "w", "t"),
        ResultLine("success", "t", None, {"total_tokens": 3}),
    ]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", []),
        (b"\n \r\n\n", []),
        (b"\xef\xbb\xbf" + HELLO, [PLAIN]),
        (HELLO + b"\r\n" + HELLO + b"\r\n", [PLAIN, PLAIN]),
        (HELLO + HELLO, [PLAIN, PLAIN]),
        (HELLO + b" " + HELLO + b" tail", [PLAIN, PLAIN, UnexpectedLine("noise", "tail")]),
        (b"(node:1) Warning" + HELLO, [UnexpectedLine("noise", "(node:1) Warning"), PLAIN]),
        (b"got {this} and " + HELLO, [UnexpectedLine("noise", "got {this} and"), PLAIN]),
        (b"\x00\x00" + HELLO, [UnexpectedLine("noise", "\x00\x00"), PLAIN]),
        (b'{"a":1}', [UnexpectedLine("noise", '{"a":1}')]),
        (b"[1]", [UnexpectedLine("noise", "[1]")]),
        (
            b'{"type":"thought","text":"x"}',
            [UnexpectedLine("unknown_event", '{"type":"thought","text":"x"}')],
        ),
        (
            b'{"type":"message","role":"assistant"}',
            [UnexpectedLine("protocol", '{"type":"message","role":"assistant"}')],
        ),
        (HELLO[:-10], [UnexpectedLine("noise", HELLO[:-10].decode())]),
    ],
)
def test_what_becomes_of_odd_lines(block: bytes, expected: list[Any]) -> None:
    """Each keeps what can be read of it, and the rest is told."""
    assert decode_block(block) == expected


def test_bad_utf8_costs_its_character_only() -> None:
    """The event stays, and the damage is told."""
    odd, message = decode_block(HELLO.replace(b"hello", b"h\xff\xfeo"))
    assert isinstance(odd, UnexpectedLine)
    assert odd.why == "encoding"
    assert isinstance(message, Message)
    assert message.content == "h\ufffd\ufffdo"


@pytest.mark.parametrize(("raw", "read"), [(b"h\\ud83do", "h\ufffdo"), (b"h\x00o", "h\x00o")])
def test_half_a_surrogate_or_a_raw_control_character_costs_no_event(raw: bytes, read: str) -> None:
    """The CLI cuts tool output between the halves of an emoji, and JSON.stringify writes what is left."""
    odd, message = decode_block(HELLO.replace(b"hello", raw))
    assert isinstance(odd, UnexpectedLine)
    assert odd.why == "encoding"
    assert message == Message("assistant", read, "t", True)


def test_an_optional_field_of_a_new_type_costs_that_field_only() -> None:
    """A timestamp that is a number one day must not cost the text."""
    odd, message = decode_block(HELLO.replace(b'"t"', b"17"))
    assert isinstance(odd, UnexpectedLine)
    assert odd.why == "protocol"
    assert message == Message("assistant", "hello")


def test_a_message_that_is_cut_off_gives_no_other_messages() -> None:
    """What a tool call quotes is not an event, also where the call itself cannot be read."""
    cut = b'{"type":"tool_use","tool_name":"a","tool_id":"b","parameters":{"x":' + HELLO
    assert decode_block(cut) == [UnexpectedLine("noise", cut.decode())]


def test_a_line_of_braces_is_read_in_bounded_time() -> None:
    """The search for a message in noise gives up."""
    found = decode_block(b'{"a":[{"type":"x"},' * 20_000)
    assert isinstance(found[-1], UnexpectedLine)


@given(_JSON)
def test_stats_and_errors_are_read_as_far_as_they_go(raw: Any) -> None:
    """No shape of them raises."""
    stats_of(raw)
    stats_of({"total_tokens": raw, "models": {"m": raw, "n": {"cached": raw}}})
    error_of(raw)
    error_of({"type": raw, "message": raw})
    text_of(raw)


def test_stats_that_are_no_counts_are_unknown() -> None:
    """None and not 0."""
    stats = stats_of(
        {"total_tokens": 3.0, "input_tokens": 1.5, "cached": -1, "output_tokens": True, "models": []}
    )
    assert stats is not None
    assert (stats.total_tokens, stats.input_tokens, stats.cached, stats.output_tokens) == (
        3,
        None,
        None,
        None,
    )
    assert stats_of({}) is None
