"""Tests of `Merge`: it merges the events of stream and journal without loss, repetition or long
delay."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminids import Text, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.accumulator import Accumulator, turns_of
from geminids.events.model import Event
from geminids.events.numbering import EventNumbers
from geminids.events.translate.journal import JournalTranslator, ToolRecord
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.journal.records import StoredMessage, decode_record
from geminids.gemini.protocol.stream_json import decode_block
from geminids.redact import Redactor
from geminids.run.headless.journal import Merge

HOLD = 0.25
_STAMP = "2026-11-16T03:27:52.123Z"
_WHERE: dict[str, Any] = {"at": 0, "attempt": 1, "turn": 1}


def _line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": _STAMP, **fields}).encode() + b"\n"


def _turn(number: int, calls: int) -> tuple[list[bytes], list[StoredMessage]]:
    """The lines that the CLI prints in a turn, and the records that it writes into its journal."""
    ids = [f"{number}-{call}" for call in range(calls)]
    stream = [_line("message", role="assistant", content=f"turn {number}. ", delta=True)]
    stream += [_line("tool_use", tool_name="x", tool_id=call_id, parameters={}) for call_id in ids]
    stream += [_line("tool_result", tool_id=call_id, status="success", output="short") for call_id in ids]
    message: dict[str, Any] = {
        "id": f"m{number}",
        "type": "gemini",
        "timestamp": _STAMP,
        "thoughts": [{"subject": "s", "description": f"thought {number}", "timestamp": _STAMP}],
        "tokens": {"input": number, "output": 1},
        "model": "m",
    }
    results = [
        {
            "id": call_id,
            "name": "x",
            "status": "success",
            "result": [{"functionResponse": {"response": {"output": f"true {call_id}"}}}],
        }
        for call_id in ids
    ]
    records = [decode_record(json.dumps(message).encode())]
    if calls:
        records.append(decode_record(json.dumps({**message, "toolCalls": results}).encode()))
    return stream, [record for record in records if isinstance(record, StoredMessage)]


@dataclass
class Sources:
    """Translators and merge of a run, with a clock that the test sets."""

    now: float = 0.0
    emitted: list[Any] = field(default_factory=list)
    created_at: list[float] = field(default_factory=list)
    """The time at which each event was created."""
    sizes: int = 0

    def __post_init__(self) -> None:
        self.recorder = EventNumbers()
        self.stream = StreamTranslator(self.recorder, Redactor())
        self.journal = JournalTranslator(self.recorder, Redactor())
        self.merge = Merge(self._put, lambda: self.now)
        self.merge.following = True
        self.known: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self._tools = 0

    def _put(self, events: list[Event], size: int) -> None:
        self.emitted += events
        self.sizes += size

    def read_stream(self, block: bytes) -> None:
        events = self.stream.translate(decode_block(block))
        self._note(events)
        tools, self._tools = self._tools, self.stream.tools_ended
        self.merge.add(events, len(block), ends_tool=tools != self._tools)

    def read(self, message: StoredMessage) -> None:
        events, records = self.journal.translate(message)
        self._note(events)
        self.known |= dict.fromkeys(records, self.now)
        self.merge.add_tool_records(records)
        if events:
            self.merge.add(events)
        self.merge.release()

    def _note(self, events: list[Event]) -> None:
        self.created_at += [self.now] * len(events)
        self.ended |= {event.id: self.now for event in events if isinstance(event, ToolFinished)}


_SCRIPT = st.lists(st.integers(0, 3), min_size=1, max_size=4).flatmap(
    lambda calls: st.tuples(
        st.just([*calls, 0]),
        st.lists(
            st.tuples(st.booleans(), st.integers(1, 3), st.sampled_from([0, 0, 0.05, 0.3])), max_size=40
        ),
        st.booleans(),
        st.sets(st.integers(0, 8), max_size=2),
    )
)


@given(_SCRIPT)
def test_the_order_of_the_sources_does_not_matter(
    script: tuple[list[int], list[tuple[bool, int, float]], bool, set[int]],
) -> None:
    """In any order of stream blocks and journal records, and with missing records, events are
    complete, in order and not late."""
    calls, steps, following, never = script
    turns = [_turn(number + 1, count) for number, count in enumerate(calls)]
    lines = [line for stream, _ in turns for line in stream]
    records = [record for _, journal in turns for record in journal]
    records = [record for at, record in enumerate(records) if at not in never]
    sources = Sources()
    sources.merge.following = following
    for from_stream, count, passes in [*steps, (True, len(lines), 0.0), (False, len(records), 0.0)]:
        sources.now += passes
        if from_stream:
            block, lines = lines[:count], lines[count:]
            sources.read_stream(b"".join(block))
        else:
            some, records = records[:count], records[count:]
            for record in some if following else ():
                sources.read(record)
        sources.merge.release()
        _check_nothing_is_late(sources)
    sources.merge.release(now=True)
    _check_all_arrived(sources, len(calls))


def _check_nothing_is_late(sources: Sources) -> None:
    """Check that events are in order, that none is held longer than `HOLD`, and that none is held
    without a journal."""
    assert [event.seq for event in sources.emitted] == list(range(len(sources.emitted)))
    late = [at for at in sources.created_at[len(sources.emitted) :] if sources.now - at >= HOLD]
    assert not late
    assert sources.merge.held == (len(sources.emitted) < len(sources.created_at))
    if not sources.merge.following:
        assert len(sources.emitted) == len(sources.created_at)


def _check_all_arrived(sources: Sources, turns: int) -> None:
    assert len(sources.emitted) == len(sources.created_at)
    assert not sources.merge.held
    text = "".join(event.text for event in sources.emitted if isinstance(event, Text))
    assert text == "".join(f"turn {number + 1}. " for number in range(turns))
    ended = [event for event in sources.emitted if isinstance(event, ToolFinished)]
    assert len(ended) == len({event.id for event in ended})
    assert len(ended) == sum(isinstance(event, ToolStarted) for event in sources.emitted)
    missed = 0
    for event in ended:
        known = sources.known.get(event.id)
        if known is not None and known < sources.ended[event.id] + HOLD:
            assert event.output == f"true {event.id}"
        else:
            assert event.output in ("short", f"true {event.id}")
        missed += event.output == "short"
    assert sources.merge.missed == (missed if sources.merge.following else 0)
    thoughts = [event.text for event in sources.emitted if isinstance(event, Thought)]
    assert len(thoughts) == len(set(thoughts))
    tokens = [event.input for event in sources.emitted if isinstance(event, TokensUsed)]
    assert len(tokens) == len(set(tokens))


@given(_SCRIPT)
def test_the_result_has_the_order_of_the_conversation(
    script: tuple[list[int], list[tuple[bool, int, float]], bool, set[int]],
) -> None:
    """In any order of the sources, the turns of the result have texts, thoughts and tools in the
    order of the conversation."""
    calls, steps, *_ = script
    turns = [_turn(number + 1, count) for number, count in enumerate(calls)]
    lines = [line for stream, _ in turns for line in stream]
    records = [record for _, journal in turns for record in journal]
    sources = Sources()
    for from_stream, count, _ in [*steps, (True, len(lines), 0), (False, len(records), 0)]:
        if from_stream:
            block, lines = lines[:count], lines[count:]
            sources.read_stream(b"".join(block))
        else:
            some, records = records[:count], records[count:]
            for record in some:
                sources.read(record)
    sources.merge.release(now=True)
    accumulator = Accumulator()
    accumulator.add(sources.emitted)
    # After a message without tool calls no new turn starts, in the stream as in the journal.
    expected: list[tuple[str, list[str], list[str]]] = [("", [], [])]
    for number, count in enumerate(calls):
        if number and calls[number - 1]:
            expected.append(("", [], []))
        text, thoughts, tools = expected[-1]
        tools += [f"{number + 1}-{call}" for call in range(count)]
        expected[-1] = (f"{text}turn {number + 1}. ", [*thoughts, f"thought {number + 1}"], tools)
    actual = [
        (turn.text, [thought.text for thought in turn.thoughts], [tool.id for tool in turn.tools])
        for turn in turns_of(accumulator.text, accumulator.conversation())
    ]
    assert actual == expected
    numbers = [turn.number for turn in turns_of(accumulator.text, accumulator.conversation())]
    assert numbers == list(range(1, len(expected) + 1))


def _ended(seq: int, call: str = "a", **fields: Any) -> ToolFinished:
    return ToolFinished(**_WHERE, seq=seq, id=call, name="x", input=None, status="ok", **fields)


def test_text_does_not_wait_if_no_tool_has_ended() -> None:
    """Text is passed on at once if no tool has ended."""
    sources = Sources()
    sources.merge.add([Text(**_WHERE, seq=0, text="x")], 10, ends_tool=False)
    assert (len(sources.emitted), sources.sizes) == (1, 10)


def test_events_after_the_end_of_a_tool_wait() -> None:
    """`ToolFinished` and later events wait for the journal; earlier events do not."""
    sources = Sources()
    before, behind = Text(**_WHERE, seq=0, text="x"), Text(**_WHERE, seq=2, text="y")
    sources.merge.add([before, _ended(1)], 20)
    sources.merge.add([behind], 5, ends_tool=False)
    assert sources.emitted == [before]
    sources.now = HOLD - 0.01
    sources.merge.release()
    assert sources.merge.held
    sources.merge.add_tool_records({"a": ToolRecord(output="true")})
    sources.merge.release()
    assert sources.emitted == [before, _ended(1, output="true"), behind]
    assert sources.sizes == 20 + 5 + len("true")
    assert sources.merge.missed == 0


def test_a_tool_is_not_released_before_the_journal_is_read() -> None:
    """After the limit, other events do not release a tool: only `release`, which runs after the
    journal was read, does."""
    sources = Sources()
    sources.merge.add([_ended(0)])
    sources.now = 2 * HOLD
    behind = Text(**_WHERE, seq=1, text="y")
    sources.merge.add([behind], ends_tool=False)
    assert sources.emitted == []
    sources.merge.add_tool_records({"a": ToolRecord(output="true")})
    sources.merge.release()
    assert sources.emitted == [_ended(0, output="true"), behind]
    assert sources.merge.missed == 0


def test_a_tool_without_a_record_is_counted() -> None:
    """A tool that the journal lacks is released unchanged and counted as missed, after the limit or
    at the end of the run."""
    for now in (True, False):
        sources = Sources()
        sources.merge.add([_ended(0)])
        sources.now = 0.0 if now else HOLD
        sources.merge.release(now=now)
        assert sources.emitted == [_ended(0)]
        assert sources.merge.missed == 1


def test_a_subagents_tool_does_not_wait() -> None:
    """A subagent's tool does not wait, because it comes from a journal itself."""
    sources = Sources()
    sources.merge.add([_ended(0, parent="p")])
    assert len(sources.emitted) == 1
    assert sources.merge.missed == 0
