"""The CLI's stream-json output, correct and damaged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids.gemini.protocol.stream_json import (
    ErrorLine,
    InitLine,
    MessageLine,
    ResultLine,
    ToolResultLine,
    ToolUseLine,
    UnexpectedLine,
    decode_block,
    error_of,
    stats_of,
    text_of,
)

HELLO = b'{"type":"message","timestamp":"t","role":"assistant","content":"hello","delta":true}'
PLAIN = MessageLine("assistant", "hello", "t", True)

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
    """Any input is decoded to lines that can be encoded as JSON.

    Only blank input gives no lines.
    """
    lines = decode_block(block)
    msgspec.json.encode(lines)
    if not lines:
        assert block.replace(b"\xef\xbb\xbf", b"").decode("utf-8", "replace").strip() == ""


@given(st.lists(_LINES.filter(lambda line: b"\n" not in line), max_size=4), st.integers(0, 4))
def test_a_damaged_line_affects_no_other_line(lines: list[bytes], at: int) -> None:
    """A valid line is decoded whatever the lines around it contain."""
    if any(b"{" in line and _is_open(line) for line in lines):
        return  # a message without its end may continue on the next line
    lines.insert(at, HELLO)
    assert PLAIN in decode_block(b"\n".join(lines) + b"\n")


def _is_open(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def test_the_six_types() -> None:
    """All six types of lines are decoded; unknown fields are ignored."""
    lines = [
        '{"type":"init","timestamp":"t","session_id":"s","model":"auto","new_field":[1]}',
        '{"type":"message","timestamp":"t","role":"user","content":"hi"}',
        '{"type":"tool_use","timestamp":"t","tool_name":"glob","tool_id":"g1","parameters":{"pattern":"*"}}',
        '{"type":"tool_result","timestamp":"t","tool_id":"g1","status":"error","error":{"type":"x","message":"y"}}',
        '{"type":"error","timestamp":"t","severity":"warning","message":"w"}',
        '{"type":"result","timestamp":"t","status":"success","stats":{"total_tokens":3}}',
    ]
    assert decode_block("\n".join(lines).encode()) == [
        InitLine("t", "s", "auto"),
        MessageLine("user", "hi", "t"),
        ToolUseLine("glob", "g1", "t", {"pattern": "*"}),
        ToolResultLine("g1", "error", "t", None, {"type": "x", "message": "y"}),
        ErrorLine("w", "warning", "t"),
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
def test_damaged_lines(block: bytes, expected: list[Any]) -> None:
    """What can be read of a damaged line is decoded, and the rest is an `UnexpectedLine`."""
    assert decode_block(block) == expected


def test_invalid_utf8_is_replaced() -> None:
    """Invalid UTF-8 is replaced and reported; the message is kept."""
    problem, message = decode_block(HELLO.replace(b"hello", b"h\xff\xfeo"))
    assert isinstance(problem, UnexpectedLine)
    assert problem.why == "encoding"
    assert isinstance(message, MessageLine)
    assert message.content == "h\ufffd\ufffdo"


@pytest.mark.parametrize(("raw", "read"), [(b"h\\ud83do", "h\ufffdo"), (b"h\x00o", "h\x00o")])
def test_half_a_surrogate_or_a_control_character(raw: bytes, read: str) -> None:
    """Half a surrogate pair and a raw control character are reported, and the message is kept.

    The CLI may cut an emoji in two.
    """
    problem, message = decode_block(HELLO.replace(b"hello", raw))
    assert isinstance(problem, UnexpectedLine)
    assert problem.why == "encoding"
    assert message == MessageLine("assistant", read, "t", True)


def test_an_optional_field_of_a_wrong_type() -> None:
    """An optional field of a wrong type is dropped and reported; the text is kept."""
    problem, message = decode_block(HELLO.replace(b'"t"', b"17"))
    assert isinstance(problem, UnexpectedLine)
    assert problem.why == "protocol"
    assert message == MessageLine("assistant", "hello")


def test_a_quoted_message_is_not_decoded() -> None:
    """A message quoted inside a cut-off tool call is not decoded as a message."""
    cut = b'{"type":"tool_use","tool_name":"a","tool_id":"b","parameters":{"x":' + HELLO
    assert decode_block(cut) == [UnexpectedLine("noise", cut.decode())]


def test_a_line_of_braces_is_read_in_bounded_time() -> None:
    """A long line of unclosed braces is decoded as an `UnexpectedLine` in bounded time."""
    lines = decode_block(b'{"a":[{"type":"x"},' * 20_000)
    assert isinstance(lines[-1], UnexpectedLine)


@given(_JSON)
def test_no_stats_or_errors_raise(raw: Any) -> None:
    """No shape of stats or errors raises."""
    stats_of(raw)
    stats_of({"total_tokens": raw, "models": {"m": raw, "n": {"cached": raw}}})
    stats_of({"total_cost_usd": raw, "models": raw})
    error_of(raw)
    error_of({"type": raw, "message": raw})
    text_of(raw)


def test_stats_that_are_no_counts_are_unknown() -> None:
    """A number of tokens that is not a count is None, not 0."""
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


@pytest.mark.parametrize(
    ("amount", "usd"), [(0.0025, 0.0025), (1, 1.0), (-1, None), (True, None), ("1", None), (1e300, None)]
)
def test_only_an_amount_is_a_cost(amount: Any, usd: float | None) -> None:
    """`total_cost_usd` is kept if it is an amount of dollars, with or without a fraction."""
    stats = stats_of({"total_cost_usd": amount, "input_tokens": 1})
    assert stats is not None
    assert (stats.total_cost_usd, stats.input_tokens, stats.models) == (usd, 1, {})


def test_an_error_without_a_severity_is_an_error() -> None:
    """An `error` event without `severity`, as other programs write it, is an error and not noise,
    also if another field of it is invalid."""
    assert decode_block(b'{"type":"error","message":"API key invalid"}\n') == [
        ErrorLine("API key invalid", "error")
    ]
    *_, error = decode_block(b'{"type":"error","message":"API key invalid","timestamp":5}\n')
    assert error == ErrorLine("API key invalid", "error")
