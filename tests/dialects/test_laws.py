"""What holds for every dialect, whatever the events are."""

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
from geminids.events.model import AnyEvent, Event, Finished, Started, Text, ToolFinished, ToolStarted
from random_events import RECORDED, any_events, lawful_runs, recorded, text_of

# Those whose lines have a last one, and what that is called. The others are one document.
_LAST = {"agent-events": "done", "claude": "result", "untether": "completed"}
_there = [name for name, module in sorted(DIALECTS.items()) if find_spec(module)]
_every = pytest.mark.parametrize("name", _there)
_each_manner = pytest.mark.parametrize(
    ("name", "partial"), [*((name, False) for name in _there), ("claude", True)]
)

# Many dialects, and each has laws of its own besides.
_some = settings(max_examples=40)
sequences = st.one_of(any_events, lawful_runs())


def _said(name: str, events: Sequence[Event], *, partial: bool = False, size: int = 1) -> bytes:
    encoder = dialect(name, partial=partial)
    said = [encoder.feed(events[at : at + size]) for at in range(0, len(events), size)]
    return b"".join((*said, encoder.finish()))


def _lines(said: bytes) -> list[dict[str, Any]]:
    assert said.endswith(b"\n")
    # Not splitlines: a text may hold what it takes for the end of a line.
    lines = [json.loads(line) for line in said[:-1].split(b"\n")]
    assert all(isinstance(line, dict) for line in lines)
    return lines


@_each_manner
@_some
@given(events=sequences, size=st.integers(1, 30))
def test_one_last_element(name: str, partial: bool, events: list[AnyEvent], size: int) -> None:
    """Nothing raises; each line is an object, one of them is the last one, and it is the last."""
    said = _said(name, events, partial=partial, size=size)
    if name not in _LAST:
        assert isinstance(json.loads(said), dict)
        assert said.endswith(b"}\n")
        return
    kinds = [line["type"] for line in _lines(said)]
    assert kinds.count(_LAST[name]) == 1
    assert kinds[-1] == _LAST[name]


@_each_manner
@_some
@given(events=sequences, size=st.integers(2, 30))
def test_batches_do_not_matter(name: str, partial: bool, events: list[AnyEvent], size: int) -> None:
    """However the events arrive, the bytes are the same: so `convert` can give those of the live run."""
    assert _said(name, events, partial=partial, size=size) == _said(name, events, partial=partial)


@_each_manner
@_some
@given(events=sequences)
def test_results_have_their_calls(name: str, partial: bool, events: list[AnyEvent]) -> None:
    """Whatever tells the end of a tool, its beginning was told before."""
    begun: set[str] = set()
    for begins, call in _calls(name, _said(name, events, partial=partial)):
        if begins:
            begun.add(call)
        else:
            assert call in begun


@_each_manner
@pytest.mark.parametrize("recording", RECORDED)
def test_recorded_calls_are_told_once(name: str, partial: bool, recording: str) -> None:
    """Each call of a real run, and each end of one, as often as it was, wherever the format has a place for them."""
    if name == "record":
        return  # it counts them
    events = recorded(recording)
    told = _calls(name, _said(name, events, partial=partial))
    begun = [event.id for event in events if isinstance(event, ToolStarted)]
    ended = [event.id for event in events if isinstance(event, ToolFinished)]
    assert sorted(call for begins, call in told if begins) == sorted(begun)
    assert sorted(call for begins, call in told if not begins) == sorted(ended)


@_every
@_some
@given(events=lawful_runs())
def test_text_is_preserved(name: str, events: list[AnyEvent]) -> None:
    """What the agent said in its last attempt can be read again, to the character; a record has the answer alone."""
    if name == "record":
        *_, end = events
        assert isinstance(end, Finished)
        assert json.loads(_said(name, events))["response"] == (end.answer or None)
        return
    told = _TEXTS[name](_said(name, events))
    assert told.endswith(text_of(events))
    # An attempt that was given up may stand before it: its lines were out already.
    everything = "".join(event.text for event in events if isinstance(event, Text))
    assert told in (text_of(events), everything)


@_each_manner
@_some
@given(events=lawful_runs(), data=st.data())
def test_a_run_that_is_cut_off(name: str, partial: bool, events: list[AnyEvent], data: st.DataObject) -> None:
    """What was said until then is kept, and it is no success."""
    kept = events[: data.draw(st.integers(0, len(events) - 1))]
    said = _said(name, kept, partial=partial)
    last = json.loads(said) if name not in _LAST else _lines(said)[-1]
    assert _SUCCESS[name](last) is not True
    if name == "record":
        assert (last["response"] or "") == _after_the_last_tool(kept)
    else:
        assert _TEXTS[name](said).endswith(text_of(kept))


@_every
@pytest.mark.parametrize("recording", RECORDED)
def test_recorded_runs_lose_no_text(name: str, recording: str) -> None:
    """The same for runs of the real CLI."""
    if name in _TEXTS:
        events = recorded(recording)
        assert _TEXTS[name](_said(name, events)) == text_of(events)


@_every
def test_a_speaker_is_made_anew(name: str) -> None:
    """What was heard of one run is not in the next."""
    events = recorded("tools")
    assert (
        b"".join(encode_run(name, events))
        == b"".join(encode_run(name, events))
        == _said(name, events, size=99)
    )


def test_a_dialect_that_there_is_not() -> None:
    """It is named, and so are those that there are."""
    with pytest.raises(GeminidsError, match="no dialect 'klingon'") as raised:
        dialect("klingon")
    assert all(name in str(raised.value) for name in DIALECTS)


def _calls(name: str, said: bytes) -> list[tuple[bool, str]]:
    """Beginnings and ends of tools, in their order."""
    found: list[tuple[bool, str]] = []
    if name == "claude":
        for line in _lines(said):
            if line["type"] in ("assistant", "user") and isinstance(line["message"]["content"], list):
                found += [
                    (block["type"] == "tool_use", block.get("id") or block.get("tool_use_id") or "")
                    for block in line["message"]["content"]
                    if block["type"] in ("tool_use", "tool_result")
                ]
    elif name == "agent-events":
        found = [
            (line["type"] == "tool_use", line["payload"]["toolUseId"])
            for line in _lines(said)
            if line["type"] in ("tool_use", "tool_result")
        ]
    elif name == "untether":
        found = [
            (line["phase"] == "started", line["action"]["id"])
            for line in _lines(said)
            if line["type"] == "action"
            and "tool_id" in line["action"]["detail"]
            and line["phase"] != "updated"
        ]
    elif name == "adapter":
        found = [
            (entry["kind"] == "tool_call", entry["toolUseId"])
            for entry in json.loads(said)["transcript"]
            if entry["kind"] in ("tool_call", "tool_result")
        ]
    elif name == "atif":
        document = json.loads(said)
        inner = document.get("subagent_trajectories", ())
        for step in [step for one in (document, *inner) for step in one["steps"]]:
            found += [(True, call["tool_call_id"]) for call in step.get("tool_calls", ())]
            found += [
                (False, one["source_call_id"]) for one in step.get("observation", {}).get("results", ())
            ]
    return found


def _of_claude(said: bytes) -> str:
    # An error of the API comes as a message too, and says that it is one.
    spoken = [line for line in _lines(said) if line["type"] == "assistant" and "error" not in line]
    messages = [line["message"]["content"] for line in spoken]
    return "".join(block["text"] for blocks in messages for block in blocks if block["type"] == "text")


def _of_agent_events(said: bytes) -> str:
    return "".join(line["payload"]["delta"] for line in _lines(said) if line["type"] == "text_delta")


def _of_atif(said: bytes) -> str:
    return "".join(step["message"] for step in json.loads(said)["steps"] if step["source"] == "agent")


def _of_adapter(said: bytes) -> str:
    transcript = json.loads(said)["transcript"]
    return "".join(entry["text"] for entry in transcript if entry["kind"] == "assistant")


def _after_the_last_tool(events: Sequence[Event]) -> str:
    said = ""
    for event in events:
        if isinstance(event, Started) or (isinstance(event, ToolStarted) and event.parent is None):
            said = ""
        elif isinstance(event, Text):
            said += event.text
    return said


_SUCCESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "adapter": lambda said: said["success"],
    "agent-events": lambda done: done["payload"]["status"] == "success",
    "atif": lambda said: said.get("extra", {}).get("outcome") == "success",
    "claude": lambda result: not result["is_error"],
    "record": lambda said: said["cakit_exit_code"] == 0,
    "untether": lambda completed: completed["ok"],
}
_TEXTS: dict[str, Callable[[bytes], str]] = {
    "adapter": _of_adapter,
    "agent-events": _of_agent_events,
    "atif": _of_atif,
    "claude": _of_claude,
    "untether": lambda said: str(_lines(said)[-1]["answer"]),
}
