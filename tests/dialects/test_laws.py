"""Rules that every dialect keeps for any events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminids.dialects.dialect import DIALECTS, dialect, encode_run
from geminids.errors import GeminidsError
from geminids.events.model import AnyEvent, Event, Finished, Notice, Started, Text, ToolFinished, ToolStarted
from random_events import RECORDED, any_events, recorded, text_of, valid_runs

# Dialects that print lines, with the type of their last line. The other dialects print one
# document.
_LAST = {"agent-events": "done", "claude": "result", "untether": "completed"}
_installed = [name for name, module in sorted(DIALECTS.items()) if find_spec(module)]
_each_dialect = pytest.mark.parametrize("name", _installed)
_each_variant = pytest.mark.parametrize(
    ("name", "partial"), [*((name, False) for name in _installed), ("claude", True)]
)

# Fewer examples than usual: there are many dialects, and each has more tests of its own.
_few_examples = settings(max_examples=40)
sequences = st.one_of(any_events, valid_runs())


def _encode(name: str, events: Sequence[Event], *, partial: bool = False, size: int = 1) -> bytes:
    encoder = dialect(name, partial=partial)
    output = [encoder.feed(events[start : start + size]) for start in range(0, len(events), size)]
    return b"".join((*output, encoder.finish()))


def _lines(output: bytes) -> list[dict[str, Any]]:
    assert output.endswith(b"\n")
    # Not splitlines(): it would also split at other characters that a text may contain.
    lines = [json.loads(line) for line in output[:-1].split(b"\n")]
    assert all(isinstance(line, dict) for line in lines)
    return lines


@_each_variant
@_few_examples
@given(events=sequences, size=st.integers(1, 30))
def test_one_last_element(name: str, partial: bool, events: list[AnyEvent], size: int) -> None:
    """Any events can be encoded. Each line is a JSON object, and only the last one has the type of
    a last line. A document is one JSON object."""
    output = _encode(name, events, partial=partial, size=size)
    if name not in _LAST:
        assert isinstance(json.loads(output), dict)
        assert output.endswith(b"}\n")
        return
    kinds = [line["type"] for line in _lines(output)]
    assert kinds.count(_LAST[name]) == 1
    assert kinds[-1] == _LAST[name]


@_each_variant
@_few_examples
@given(events=sequences, size=st.integers(2, 30))
def test_batches_do_not_matter(name: str, partial: bool, events: list[AnyEvent], size: int) -> None:
    """The split into batches does not change the bytes, so that `convert` prints the same as the
    live run."""
    assert _encode(name, events, partial=partial, size=size) == _encode(name, events, partial=partial)


@_each_variant
@_few_examples
@given(events=sequences)
def test_results_have_their_calls(name: str, partial: bool, events: list[AnyEvent]) -> None:
    """The end of a tool call never comes before its start."""
    started: set[str] = set()
    for is_start, call in _tool_events(name, _encode(name, events, partial=partial)):
        if is_start:
            started.add(call)
        else:
            assert call in started


@_each_variant
@pytest.mark.parametrize("recording", RECORDED)
def test_recorded_calls_are_encoded_once(name: str, partial: bool, recording: str) -> None:
    """Each tool call of a recorded run, and each end of a call, is encoded once, if the format has
    tool calls."""
    if name == "record":
        return  # this format only counts the calls
    events = recorded(recording)
    reported = _tool_events(name, _encode(name, events, partial=partial))
    starts = [event.id for event in events if isinstance(event, ToolStarted)]
    ends = [event.id for event in events if isinstance(event, ToolFinished)]
    assert sorted(call for is_start, call in reported if is_start) == sorted(starts)
    assert sorted(call for is_start, call in reported if not is_start) == sorted(ends)


@_each_dialect
@_few_examples
@given(events=valid_runs())
def test_text_is_preserved(name: str, events: list[AnyEvent]) -> None:
    """The text of the last attempt is preserved to the character. A record has only the answer."""
    if name == "record":
        *_, finished = events
        assert isinstance(finished, Finished)
        assert json.loads(_encode(name, events))["response"] == (finished.answer or None)
        return
    reported = _TEXTS[name](_encode(name, events))
    assert reported.endswith(text_of(events))
    # The text of an abandoned attempt may come before it, because its lines were already written.
    all_text = "".join(event.text for event in events if isinstance(event, Text))
    assert reported in (text_of(events), all_text)


@_each_variant
@_few_examples
@given(events=valid_runs(), data=st.data())
def test_a_run_that_is_cut_off(name: str, partial: bool, events: list[AnyEvent], data: st.DataObject) -> None:
    """The output of a truncated run has all its text and does not report success."""
    truncated = events[: data.draw(st.integers(0, len(events) - 1))]
    output = _encode(name, truncated, partial=partial)
    last = json.loads(output) if name not in _LAST else _lines(output)[-1]
    assert _SUCCESS[name](last) is not True
    if name == "record":
        assert (last["response"] or "") == _text_after_the_last_tool(truncated)
    else:
        assert _TEXTS[name](output).endswith(text_of(truncated))


@_each_dialect
@pytest.mark.parametrize("recording", RECORDED)
def test_recorded_runs_lose_no_text(name: str, recording: str) -> None:
    """The text of a recorded run is preserved to the character."""
    if name in _TEXTS:
        events = recorded(recording)
        assert _TEXTS[name](_encode(name, events)) == text_of(events)


@_each_dialect
def test_each_run_has_its_own_encoder(name: str) -> None:
    """Encoding a run twice gives the same bytes: nothing of one run appears in the next."""
    events = recorded("tools")
    assert (
        b"".join(encode_run(name, events))
        == b"".join(encode_run(name, events))
        == _encode(name, events, size=99)
    )


def test_an_unknown_dialect() -> None:
    """The error about an unknown dialect names it and the known dialects."""
    with pytest.raises(GeminidsError, match="no dialect 'klingon'") as raised:
        dialect("klingon")
    assert all(name in str(raised.value) for name in DIALECTS)


def _tool_events(name: str, output: bytes) -> list[tuple[bool, str]]:
    """Return the starts (True) and ends (False) of tool calls in the output, in order."""
    events: list[tuple[bool, str]] = []
    if name == "claude":
        for line in _lines(output):
            if line["type"] in ("assistant", "user") and isinstance(line["message"]["content"], list):
                events += [
                    (block["type"] == "tool_use", block.get("id") or block.get("tool_use_id") or "")
                    for block in line["message"]["content"]
                    if block["type"] in ("tool_use", "tool_result")
                ]
    elif name == "agent-events":
        events = [
            (line["type"] == "tool_use", line["payload"]["toolUseId"])
            for line in _lines(output)
            if line["type"] in ("tool_use", "tool_result")
        ]
    elif name == "untether":
        events = [
            (line["phase"] == "started", line["action"]["id"])
            for line in _lines(output)
            if line["type"] == "action"
            and "tool_id" in line["action"]["detail"]
            and line["phase"] != "updated"
        ]
    elif name == "adapter":
        events = [
            (entry["kind"] == "tool_call", entry["toolUseId"])
            for entry in json.loads(output)["transcript"]
            if entry["kind"] in ("tool_call", "tool_result")
        ]
    elif name == "atif":
        document = json.loads(output)
        inner = document.get("subagent_trajectories", ())
        for step in [step for one in (document, *inner) for step in one["steps"]]:
            events += [(True, call["tool_call_id"]) for call in step.get("tool_calls", ())]
            events += [
                (False, one["source_call_id"]) for one in step.get("observation", {}).get("results", ())
            ]
    return events


def _claude_text(output: bytes) -> str:
    # An API error is an assistant line too, but has the field `error`.
    assistant = [line for line in _lines(output) if line["type"] == "assistant" and "error" not in line]
    messages = [line["message"]["content"] for line in assistant]
    return "".join(block["text"] for blocks in messages for block in blocks if block["type"] == "text")


def _agent_events_text(output: bytes) -> str:
    return "".join(line["payload"]["delta"] for line in _lines(output) if line["type"] == "text_delta")


def _atif_text(output: bytes) -> str:
    return "".join(step["message"] for step in json.loads(output)["steps"] if step["source"] == "agent")


def _adapter_text(output: bytes) -> str:
    transcript = json.loads(output)["transcript"]
    return "".join(entry["text"] for entry in transcript if entry["kind"] == "assistant")


def _text_after_the_last_tool(events: Sequence[Event]) -> str:
    output = ""
    for event in events:
        if isinstance(event, Started) or (isinstance(event, ToolStarted) and event.parent is None):
            output = ""
        elif isinstance(event, Text):
            output += event.text
    return output


_SUCCESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "adapter": lambda output: output["success"],
    "agent-events": lambda done: done["payload"]["status"] == "success",
    "atif": lambda output: output.get("extra", {}).get("outcome") == "success",
    "claude": lambda result: not result["is_error"],
    "record": lambda output: output["exit_code"] == 0,
    "untether": lambda completed: completed["ok"],
}
_TEXTS: dict[str, Callable[[bytes], str]] = {
    "adapter": _adapter_text,
    "agent-events": _agent_events_text,
    "atif": _atif_text,
    "claude": _claude_text,
    "untether": lambda output: str(_lines(output)[-1]["answer"]),
}


@pytest.mark.parametrize("name", [name for name in _installed if name != "agent-events"])
def test_the_tools_of_a_run_are_not_a_message(name: str) -> None:
    """The notice that lists the tools changes nothing in the other formats."""
    events = recorded("tools")
    at = next(index for index, event in enumerate(events) if type(event) is not Started)
    notice = Notice(
        at=events[at].at, seq=0, attempt=1, turn=1, level="debug", code="tools", message="2", tools=("a", "b")
    )
    assert _encode(name, [*events[:at], notice, *events[at:]]) == _encode(name, events)
