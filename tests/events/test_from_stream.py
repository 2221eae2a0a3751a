"""Lines become events: numbered, timed, paired, and without secrets."""

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
    Init,
    Message,
    ResultLine,
    ToolResult,
    ToolUse,
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
        st.builds(Message, role=st.just("assistant"), content=_TEXT, timestamp=_STAMP),
        st.builds(Message, role=st.sampled_from(["user", "system"]), content=_TEXT, timestamp=_STAMP),
        st.builds(
            ToolUse, tool_name=st.sampled_from(["glob", "x"]), tool_id=_ID, timestamp=_STAMP, parameters=_ANY
        ),
        st.builds(
            ToolResult,
            tool_id=_ID,
            status=st.sampled_from(["success", "error", "new"]),
            timestamp=_STAMP,
            output=_ANY,
            error=_ANY,
        ),
        st.builds(ErrorLine, severity=st.just("warning"), message=_TEXT),
        st.builds(UnexpectedLine, why=st.sampled_from(["noise", "protocol"]), line=_TEXT),
        st.builds(Init, session_id=st.just("s")),
        st.builds(ResultLine, status=st.just("success"), error=_ANY),
    ),
    max_size=40,
)


def _translate(lines: list[Any], cuts: list[int] | None = None, secrets: tuple[str, ...] = ()) -> list[Any]:
    stream = StreamTranslator(EventNumbers(), Redactor(secrets))
    events: list[Any] = []
    at = 0
    for cut in [*sorted(cut for cut in cuts or [] if cut < len(lines)), len(lines)]:
        events += stream.translate(lines[at:cut])
        at = cut
    return [*events, *stream.finish()]


def _half() -> Message:
    return Message("assistant", SECRET[: len(SECRET) // 2])


def _joined(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@given(_LINES, st.lists(st.integers(0, 40), max_size=6), st.booleans())
def test_the_laws_hold_for_any_lines(lines: list[Any], cuts: list[int], with_secret: bool) -> None:
    """Numbers without gaps, each tool ended once, all text kept, every event written and read again."""
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
        said = [line.content for line in lines if isinstance(line, Message) and line.role == "assistant"]
        assert _joined(events) == "".join(said)


@given(_LINES, st.lists(st.integers(0, 40), max_size=6))
@example([_half(), Init(session_id="s"), _half()], [])
@example([_half(), ResultLine("success"), _half()], [1, 2])
@example([_half(), ToolResult("never began", "success"), _half()], [])
@example([ToolUse("x", "1"), _half(), ToolUse("x", "1"), _half()], [])
@example([_half(), Message("user", "hello "), _half()], [2])
def test_no_event_holds_a_secret(lines: list[Any], cuts: list[int]) -> None:
    """Nor do the texts of two events, where only noise stands between them."""
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
    """From bytes to events, whatever they are."""
    for event in _translate(decode_block(block), secrets=(SECRET,)):
        encode_event(event)


def test_a_secret_that_reads_like_a_word_of_the_cli_takes_nothing_away() -> None:
    """SORT_KEY=timestamp is a secret by its name; the stream must survive it."""
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


def test_what_the_ending_is_judged_by_holds_no_secret() -> None:
    """Errors and the result become a failure's message later."""
    stream = StreamTranslator(EventNumbers(), Redactor([SECRET]))
    stream.translate(
        [ErrorLine("error", f"bad {SECRET}"), ResultLine("error", error={"message": f"bad {SECRET}"})]
    )
    assert stream.errors == [ErrorLine("error", "bad ***")]
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
    """To the millisecond, also the second time in the same second."""
    lines = [Message("assistant", "a", stamp), Message("assistant", "b", stamp), ToolUse("x", "1", stamp)]
    assert [event.at for event in _translate(lines)][:3] == [at, at, at]


def test_turns() -> None:
    """A turn is what the model says between two batches of results."""
    lines = [
        Message("assistant", "let me see"),
        ToolUse("glob", "1"),
        ToolUse("glob", "2"),
        ToolResult("1", "success"),
        ToolResult("2", "success"),
        Message("assistant", "so"),
    ]
    assert [event.turn for event in _translate(lines)] == [1, 1, 1, 1, 1, 2]


def test_a_cut_off_tool_is_cancelled() -> None:
    """It gets its end from us, with what it was called with."""
    started, finished = _translate([ToolUse("run_shell_command", "1", parameters={"command": "sleep 9"})])
    assert (finished.id, finished.status, finished.input) == (started.id, "cancelled", {"command": "sleep 9"})


def test_odd_results_are_told() -> None:
    """A result without a call, a call that begins twice, two inits and two results are notices."""
    lines = [
        ToolResult("none", "success", output="text"),
        ToolUse("x", "1"),
        ToolUse("x", "1"),
        Init(),
        Init(),
        ResultLine("success"),
        ResultLine("error"),
        Message("system", "odd"),
    ]
    events = _translate(lines)
    codes = [event.code for event in events if isinstance(event, Notice)]
    assert codes == ["protocol", "protocol", "session", "protocol", "protocol", "unknown_role"]


def test_many_odd_lines_take_linear_time() -> None:
    """Fifty thousand in one block are no more work each than one."""
    events = _translate([UnexpectedLine("noise", "x")] * 50_000)
    assert len(events) == 50_000


def test_an_output_that_is_no_text_is_shown_as_json() -> None:
    """Diff objects may come one day."""
    _, finished = _translate([ToolUse("x", "1"), ToolResult("1", "success", output={"fileDiff": "+a"})])
    assert json.loads(finished.output) == {"fileDiff": "+a"}


def test_a_tool_that_is_forbidden_is_denied() -> None:
    """Whatever the CLI calls it: who forbade it says why, beside what the CLI said."""
    error = {"type": "tool_not_registered", "message": 'Tool "glob" not found.'}
    lines: list[Any] = [
        ToolUse(tool_name="glob", tool_id="a", parameters={}),
        ToolResult(tool_id="a", status="error", error=error),
        ToolUse(tool_name="other", tool_id="b", parameters={}),
        ToolResult(tool_id="b", status="error", error=error),
    ]
    asked: list[str] = []

    def why_not(name: str, given: Any) -> str | None:
        asked.append(name)
        return "the run may not search" if name == "glob" else None

    stream = StreamTranslator(EventNumbers(), Redactor(), why_not)
    ends = [event for event in stream.translate(lines) if isinstance(event, ToolFinished)]
    assert asked == ["glob", "other"]
    assert [end.status for end in ends] == ["denied", "failed"]
    assert "the run may not search" in (ends[0].error or "")


def test_the_first_and_the_last_errors_are_kept() -> None:
    """A CLI that complains for ever does not fill the memory."""
    stream = StreamTranslator(EventNumbers(), Redactor())
    stream.translate([ErrorLine(severity="error", message=str(number)) for number in range(1000)])
    kept = [line.message for line in stream.errors]
    assert (len(kept), kept[0], kept[-1]) == (200, "0", "999")
