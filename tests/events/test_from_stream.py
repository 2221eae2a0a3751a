"""Lines of the CLI's stream become events: numbered, timed, paired, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids import Notice, Text, ToolFinished, ToolStarted, decode_event, encode_event
from geminids.events.numbering import EventNumbers
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.stream_json import (
    ErrorLine,
    InitLine,
    MessageLine,
    ResultLine,
    ToolResultLine,
    ToolUseLine,
    UnexpectedLine,
    decode_block,
)
from geminids.redact import Redactor

SECRET = "hunter2hunter2"
_TEXT = st.sampled_from(["", "hello ", "hunter2", "h", "unter2hunter2", SECRET, "é\n"])
_ID = st.sampled_from(["a", "b", "c"])
_STAMP = st.sampled_from(
    ["", "soon", "2026-11-16T03:27:52.123Z", "2026-11-16T03:27:52Z", "2026-11-16T03:28:00.9Z"]
)
_ANY = st.sampled_from([None, "out", SECRET, 3, [1, {"a": SECRET}], {"message": SECRET, "type": "x"}, {}])
_LINES = st.lists(
    st.one_of(
        st.builds(MessageLine, role=st.just("assistant"), content=_TEXT, timestamp=_STAMP),
        st.builds(MessageLine, role=st.sampled_from(["user", "system"]), content=_TEXT, timestamp=_STAMP),
        st.builds(
            ToolUseLine,
            tool_name=st.sampled_from(["glob", "x"]),
            tool_id=_ID,
            timestamp=_STAMP,
            parameters=_ANY,
        ),
        st.builds(
            ToolResultLine,
            tool_id=_ID,
            status=st.sampled_from(["success", "error", "new"]),
            timestamp=_STAMP,
            output=_ANY,
            error=_ANY,
        ),
        st.builds(ErrorLine, severity=st.just("warning"), message=_TEXT),
        st.builds(UnexpectedLine, why=st.sampled_from(["noise", "protocol"]), line=_TEXT),
        st.builds(InitLine, session_id=st.just("s")),
        st.builds(ResultLine, status=st.just("success"), error=_ANY),
    ),
    max_size=40,
)


def _translate(lines: list[Any], cuts: list[int] | None = None, secrets: tuple[str, ...] = ()) -> list[Any]:
    stream = StreamTranslator(EventNumbers(), Redactor(secrets))
    events: list[Any] = []
    start = 0
    for cut in [*sorted(cut for cut in cuts or [] if cut < len(lines)), len(lines)]:
        events += stream.translate(lines[start:cut])
        start = cut
    return [*events, *stream.finish()]


def _half_secret() -> MessageLine:
    return MessageLine("assistant", SECRET[: len(SECRET) // 2])


def _join_text(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@given(_LINES, st.lists(st.integers(0, 40), max_size=6), st.booleans())
def test_the_laws_hold_for_any_lines(lines: list[Any], cuts: list[int], with_secret: bool) -> None:
    """For any lines, event numbers have no gaps, each tool ends once, all text is kept, and every
    event can be encoded and decoded."""
    events = _translate(lines, cuts, (SECRET,) if with_secret else ())
    assert [event.seq for event in events] == list(range(len(events)))
    running: set[str] = set()
    for event in events:
        if isinstance(event, ToolStarted):
            assert event.id not in running
            running.add(event.id)
        elif isinstance(event, ToolFinished):
            running.remove(event.id)
    assert not running
    assert [decode_event(encode_event(event)) for event in events] == events
    if not with_secret:
        contents = [
            line.content for line in lines if isinstance(line, MessageLine) and line.role == "assistant"
        ]
        assert _join_text(events) == "".join(contents)


@given(_LINES, st.lists(st.integers(0, 40), max_size=6))
@example([_half_secret(), InitLine(session_id="s"), _half_secret()], [])
@example([_half_secret(), ResultLine("success"), _half_secret()], [1, 2])
@example([_half_secret(), ToolResultLine("never began", "success"), _half_secret()], [])
@example([ToolUseLine("x", "1"), _half_secret(), ToolUseLine("x", "1"), _half_secret()], [])
@example([_half_secret(), MessageLine("user", "hello "), _half_secret()], [2])
def test_no_event_holds_a_secret(lines: list[Any], cuts: list[int]) -> None:
    """No event contains a secret, and neither do consecutive text events between two tool
    events."""
    events = _translate(lines, cuts, (SECRET,))
    assert not any(SECRET in encode_event(event).decode() for event in events)
    text = ""
    for event in events:
        if isinstance(event, (ToolStarted, ToolFinished)):
            text = ""
        elif isinstance(event, Text):
            text += event.text
            assert SECRET not in text


@given(st.binary(max_size=300))
def test_no_bytes_raise(block: bytes) -> None:
    """Any bytes from the CLI can be decoded, translated and encoded without an exception."""
    for event in _translate(decode_block(block), secrets=(SECRET,)):
        encode_event(event)


def test_a_secret_equal_to_a_protocol_word() -> None:
    """A secret with the text of a protocol key, such as SORT_KEY=timestamp, is masked in text and
    does not break the protocol."""
    block = (
        b'{"type":"init","timestamp":"2026-11-16T03:27:52.123Z","session_id":"s1","model":"auto"}\n'
        b'{"type":"message","timestamp":"2026-11-16T03:27:52.123Z","role":"assistant","content":"the timestamp"}\n'
        b'{"type":"result","timestamp":"2026-11-16T03:27:52.123Z","status":"success","stats":{"total_tokens":12345678}}\n'
    )
    stream = StreamTranslator(EventNumbers(), Redactor(["timestamp", "assistant", "session_id", "12345678"]))
    session, text = [*stream.translate(decode_block(block)), *stream.finish()]
    assert isinstance(session, Notice)
    assert isinstance(text, Text)
    assert (text.at, text.text) == (1794799672123, "the ***")
    assert stream.init is not None
    assert stream.init.session_id == "s1"
    assert stream.result is not None
    assert stream.result.stats == {"total_tokens": 12345678}


def test_errors_and_the_result_are_masked() -> None:
    """Secrets are masked in error lines and in the result line, because a failure's message is made
    from them."""
    stream = StreamTranslator(EventNumbers(), Redactor([SECRET]))
    stream.translate(
        [ErrorLine(f"bad {SECRET}", "error"), ResultLine("error", error={"message": f"bad {SECRET}"})]
    )
    assert stream.errors == [ErrorLine("bad ***", "error")]
    assert stream.result == ResultLine("error", error={"message": "bad ***"})


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ("2026-11-16T03:27:52.123Z", 1794799672123),
        ("2026-11-16T03:27:52.007Z", 1794799672007),
        ("2026-11-16T03:27:52Z", 1794799672000),
        ("2026-11-16T03:27:52.123456Z", 1794799672123),
    ],
)
def test_timestamps(stamp: str, at: int) -> None:
    """Event times are exact to the millisecond, also for several lines with the same time."""
    lines = [
        MessageLine("assistant", "a", stamp),
        MessageLine("assistant", "b", stamp),
        ToolUseLine("x", "1", stamp),
    ]
    assert [event.at for event in _translate(lines)][:3] == [at, at, at]


def test_turns() -> None:
    """A turn is what the model sends between two batches of tool results."""
    lines = [
        MessageLine("assistant", "let me see"),
        ToolUseLine("glob", "1"),
        ToolUseLine("glob", "2"),
        ToolResultLine("1", "success"),
        ToolResultLine("2", "success"),
        MessageLine("assistant", "so"),
    ]
    assert [event.turn for event in _translate(lines)] == [1, 1, 1, 1, 1, 2]


def test_a_cut_off_tool_is_cancelled() -> None:
    """A tool without a result is ended as `cancelled`, with its input."""
    started, finished = _translate([ToolUseLine("run_shell_command", "1", parameters={"command": "sleep 9"})])
    assert (finished.id, finished.status, finished.input) == (started.id, "cancelled", {"command": "sleep 9"})


def test_unexpected_lines_become_notices() -> None:
    """A result without a call, a call that starts twice, a second init, a second result and an
    unknown role become notices."""
    lines = [
        ToolResultLine("none", "success", output="text"),
        ToolUseLine("x", "1"),
        ToolUseLine("x", "1"),
        InitLine(),
        InitLine(),
        ResultLine("success"),
        ResultLine("error"),
        MessageLine("system", "odd"),
    ]
    events = _translate(lines)
    codes = [event.code for event in events if isinstance(event, Notice)]
    assert codes == ["protocol", "protocol", "session", "protocol", "protocol", "unknown_role"]


def test_many_unexpected_lines_in_one_block() -> None:
    """A block of 50,000 unexpected lines gives 50,000 events, in a time that grows linearly."""
    events = _translate([UnexpectedLine("noise", "x")] * 50_000)
    assert len(events) == 50_000


def test_an_output_that_is_not_text_becomes_json() -> None:
    """An output that is an object, such as a diff, is reported as JSON text."""
    _, finished = _translate(
        [ToolUseLine("x", "1"), ToolResultLine("1", "success", output={"fileDiff": "+a"})]
    )
    assert json.loads(finished.output) == {"fileDiff": "+a"}


def test_a_forbidden_tool_is_denied() -> None:
    """A failed call of a forbidden tool is reported as `denied`, with our reason. Other failed
    calls stay `failed`."""
    error = {"type": "tool_not_registered", "message": 'Tool "glob" not found.'}
    lines: list[Any] = [
        ToolUseLine(tool_name="glob", tool_id="a", parameters={}),
        ToolResultLine(tool_id="a", status="error", error=error),
        ToolUseLine(tool_name="other", tool_id="b", parameters={}),
        ToolResultLine(tool_id="b", status="error", error=error),
    ]
    asked: list[str] = []

    def why_not(name: str, arguments: Any) -> str | None:
        asked.append(name)
        return "the run may not search" if name == "glob" else None

    stream = StreamTranslator(EventNumbers(), Redactor(), why_not)
    ends = [event for event in stream.translate(lines) if isinstance(event, ToolFinished)]
    assert asked == ["glob", "other"]
    assert [end.status for end in ends] == ["denied", "failed"]
    assert "the run may not search" in (ends[0].error or "")


def test_the_first_and_the_last_errors_are_kept() -> None:
    """Of 1,000 error lines only 200 are kept, with the first and the last, so that memory stays
    limited."""
    stream = StreamTranslator(EventNumbers(), Redactor())
    stream.translate([ErrorLine(severity="error", message=str(number)) for number in range(1000)])
    kept = [line.message for line in stream.errors]
    assert (len(kept), kept[0], kept[-1]) == (200, "0", "999")
