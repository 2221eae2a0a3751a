"""Tests of `events_of_stream`: a recorded stream-json output becomes the events of a run."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from geminids.events.model import Event, Finished, Notice, Started, Text, ToolFinished, encode_event
from geminids.run.recordings.stream_json import events_of_stream

_AT = "2026-11-16T03:33:20.{:03}Z"
_STATS = {"total_tokens": 110, "input_tokens": 100, "output_tokens": 10, "cached": 20, "duration_ms": 900}


def _line(kind: str, ms: int, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": _AT.format(ms), **fields}).encode() + b"\n"


INIT = _line("init", 0, session_id="s1", model="auto")
ASKED = _line("message", 1, role="user", content="Do it.")
MESSAGE = _line("message", 2, role="assistant", content="It is done.", delta=True)
CALL = _line("tool_use", 3, tool_name="read_file", tool_id="t1", parameters={"file_path": "a"})
RESULT = _line("tool_result", 7, tool_id="t1", status="success", output="")
DONE = _line("result", 9, status="success", stats=_STATS)


def _events(*blocks: bytes) -> list[Event]:
    return [event for batch in events_of_stream(blocks) for event in batch]


def test_a_whole_run() -> None:
    """A complete recording gives `Started` with the prompt and `Finished` with the usage, all with
    the recorded times."""
    events = _events(INIT + ASKED + CALL + RESULT + MESSAGE + DONE)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Started", "Notice", "ToolStarted", "ToolFinished", "Text", "Finished"]
    assert [event.seq for event in events] == list(range(6))
    started, end = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(end, Finished)
    assert (started.session_id, started.model, started.prompt) == ("s1", "auto", "Do it.")
    assert (end.outcome, end.answer, end.session_id) == ("success", "It is done.", "s1")
    assert end.usage is not None and (end.usage.input, end.usage.total) == (100, 110)
    assert (end.duration_ms, end.exit_code, end.complete) == (900, None, False)
    assert all(event.at // 1000 == 1_794_800_000 for event in events)
    assert end.run_id == started.run_id


def test_the_same_lines_give_the_same_events() -> None:
    """The same lines give the same events, also if they are read in other blocks."""
    lines = [b"noise\n", INIT, ASKED, CALL, b"more noise\n", MESSAGE]
    together, apart = _events(b"".join(lines)), _events(*lines)
    assert [encode_event(event) for event in together] == [encode_event(event) for event in apart]


def test_a_recording_that_was_cut_off() -> None:
    """A recording without a result fails as `cut_off`.

    Its text is kept, and open tools are cancelled.
    """
    events = _events(INIT + MESSAGE + CALL)
    tool, end = events[-2:]
    assert isinstance(tool, ToolFinished) and isinstance(end, Finished)
    assert (tool.status, tool.duration_ms, tool.at) == ("cancelled", None, 1_794_800_000_003)
    assert (end.outcome, end.failure and end.failure.kind, end.text) == ("failed", "cut_off", "It is done.")
    assert end.duration_ms == 3
    assert end.usage is None


def test_a_run_that_failed() -> None:
    """An error in the result line is judged as in a live run."""
    error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns"}
    (*_, end) = _events(INIT + ASKED + _line("result", 9, status="error", error=error))
    assert isinstance(end, Finished)
    assert end.outcome == "max_turns"


def test_lines_without_a_beginning() -> None:
    """A recording without its first lines has no session and no prompt, but all other events."""
    started, text, end = _events(MESSAGE + DONE)
    assert isinstance(started, Started) and isinstance(text, Text) and isinstance(end, Finished)
    assert (started.session_id, started.prompt, end.outcome) == (None, None, "success")


def test_an_empty_recording() -> None:
    """A recording without messages still gives `Started` and `Finished`."""
    for blocks in ((), (INIT,), (b"noise\n",)):
        events = _events(*blocks)
        assert isinstance(events[0], Started)
        assert isinstance(events[-1], Finished)
        assert all(isinstance(event, Notice) for event in events[1:-1])


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from([INIT, ASKED, MESSAGE, CALL, RESULT, DONE, b"noise\n", b"{\n", b'{"type":"new"}\n'])
    )
)
def test_any_lines_in_any_order(lines: list[bytes]) -> None:
    """Any lines in any order give `Started` first, one `Finished` last, numbers without gaps, and
    the text of all `Text` events."""
    events = _events(*lines)
    assert isinstance(events[0], Started)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "".join(event.text for event in events if isinstance(event, Text))


def test_an_invalid_timestamp() -> None:
    """An event with an invalid timestamp is kept; its time is 0."""
    line = b'{"type":"message","role":"assistant","content":"x","timestamp":"soon"}\n'
    started, text, _ = _events(line)
    assert started.at == 0
    assert isinstance(text, Text)
