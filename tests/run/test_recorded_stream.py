"""What the CLI once printed, as events."""

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
SAID = _line("message", 2, role="assistant", content="It is done.", delta=True)
CALL = _line("tool_use", 3, tool_name="read_file", tool_id="t1", parameters={"file_path": "a"})
RESULT = _line("tool_result", 7, tool_id="t1", status="success", output="")
DONE = _line("result", 9, status="success", stats=_STATS)


def _events(*blocks: bytes) -> list[Event]:
    return [event for batch in events_of_stream(blocks) for event in batch]


def test_a_whole_run() -> None:
    """From `Started`, which has the prompt, to `Finished`, which has the sums: and not a time of now."""
    events = _events(INIT + ASKED + CALL + RESULT + SAID + DONE)
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["Started", "Notice", "ToolStarted", "ToolFinished", "Text", "Finished"]
    assert [event.seq for event in events] == list(range(6))
    began, end = events[0], events[-1]
    assert isinstance(began, Started) and isinstance(end, Finished)
    assert (began.session_id, began.model, began.prompt) == ("s1", "auto", "Do it.")
    assert (end.outcome, end.answer, end.session_id) == ("success", "It is done.", "s1")
    assert end.usage is not None and (end.usage.input, end.usage.total) == (100, 110)
    assert (end.duration_ms, end.exit_code, end.complete) == (900, None, False)
    assert all(event.at // 1000 == 1_794_800_000 for event in events)
    assert end.run_id == began.run_id


def test_the_same_lines_give_the_same_events() -> None:
    """Whichever blocks they come in, and whenever."""
    lines = [b"noise\n", INIT, ASKED, CALL, b"more noise\n", SAID]
    together, apart = _events(b"".join(lines)), _events(*lines)
    assert [encode_event(event) for event in together] == [encode_event(event) for event in apart]


def test_a_recording_that_was_cut_off() -> None:
    """No result is no success; what was said is kept, and a tool without its end is cancelled."""
    events = _events(INIT + SAID + CALL)
    tool, end = events[-2:]
    assert isinstance(tool, ToolFinished) and isinstance(end, Finished)
    assert (tool.status, tool.duration_ms, tool.at) == ("cancelled", None, 1_794_800_000_003)
    assert (end.outcome, end.failure and end.failure.kind, end.text) == ("failed", "cut_off", "It is done.")
    assert end.duration_ms == 3
    assert end.usage is None


def test_a_run_that_failed() -> None:
    """What the result says of the failure is judged as in a live run."""
    error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns"}
    (*_, end) = _events(INIT + ASKED + _line("result", 9, status="error", error=error))
    assert isinstance(end, Finished)
    assert end.outcome == "max_turns"


def test_lines_without_a_beginning() -> None:
    """A recording that lacks its first lines has no session, and all the rest."""
    began, said, end = _events(SAID + DONE)
    assert isinstance(began, Started) and isinstance(said, Text) and isinstance(end, Finished)
    assert (began.session_id, began.prompt, end.outcome) == (None, None, "success")


def test_nothing_at_all() -> None:
    """No line is a run too: one that was cut off."""
    for blocks in ((), (INIT,), (b"noise\n",)):
        events = _events(*blocks)
        assert isinstance(events[0], Started)
        assert isinstance(events[-1], Finished)
        assert all(isinstance(event, Notice) for event in events[1:-1])


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from([INIT, ASKED, SAID, CALL, RESULT, DONE, b"noise\n", b"{\n", b'{"type":"new"}\n'])
    )
)
def test_any_lines_in_any_order(lines: list[bytes]) -> None:
    """Nothing raises: `Started` first, `Finished` last, numbers without gaps, and the text is its pieces."""
    events = _events(*lines)
    assert isinstance(events[0], Started)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "".join(event.text for event in events if isinstance(event, Text))


def test_a_time_that_is_none() -> None:
    """A stamp that cannot be read costs the time, not the event."""
    line = b'{"type":"message","role":"assistant","content":"x","timestamp":"soon"}\n'
    began, said, _ = _events(line)
    assert began.at == 0
    assert isinstance(said, Text)
