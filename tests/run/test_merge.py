"""Two sources, one stream: however they come in, nothing is lost, doubled, out of order, or kept for long."""

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
from geminids.events.translate.journal import JournalTranslator, Truth
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.journal.records import Message, decode_record
from geminids.gemini.protocol.stream_json import decode_block
from geminids.redact import Redactor
from geminids.run.headless.journal import Merge

HOLD = 0.25
_STAMP = "2026-11-16T03:27:52.123Z"
_WHERE: dict[str, Any] = {"at": 0, "attempt": 1, "turn": 1}


def _line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": _STAMP, **fields}).encode() + b"\n"


def _turn(number: int, calls: int) -> tuple[list[bytes], list[Message]]:
    """What the CLI prints in a turn, and what it writes into its journal."""
    ids = [f"{number}-{call}" for call in range(calls)]
    stream = [_line("message", role="assistant", content=f"turn {number}. ", delta=True)]
    stream += [_line("tool_use", tool_name="x", tool_id=one, parameters={}) for one in ids]
    stream += [_line("tool_result", tool_id=one, status="success", output="short") for one in ids]
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
            "id": one,
            "name": "x",
            "status": "success",
            "result": [{"functionResponse": {"response": {"output": f"true {one}"}}}],
        }
        for one in ids
    ]
    records = [decode_record(json.dumps(message).encode())]
    if calls:
        records.append(decode_record(json.dumps({**message, "toolCalls": results}).encode()))
    return stream, [record for record in records if isinstance(record, Message)]


@dataclass
class Lane:
    """The parts that a run has between its two sources and its consumer, with a clock of our own."""

    now: float = 0.0
    got: list[Any] = field(default_factory=list)
    made: list[float] = field(default_factory=list)
    """When the event of each number was made."""
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
        self.got += events
        self.sizes += size

    def hear(self, block: bytes) -> None:
        events = self.stream.translate(decode_block(block))
        self._note(events)
        tools, self._tools = self._tools, self.stream.tools_ended
        self.merge.add(events, len(block), ends_tool=tools != self._tools)

    def read(self, message: Message) -> None:
        events, truths = self.journal.translate(message)
        self._note(events)
        self.known |= dict.fromkeys(truths, self.now)
        self.merge.add_truths(truths)
        if events:
            self.merge.add(events)
        self.merge.release()

    def _note(self, events: list[Event]) -> None:
        self.made += [self.now] * len(events)
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
def test_the_laws_hold_however_the_sources_interleave(
    script: tuple[list[int], list[tuple[bool, int, float]], bool, set[int]],
) -> None:
    """Blocks of the stream and records of the journal, in any order between them, some records never written."""
    calls, steps, following, never = script
    turns = [_turn(number + 1, count) for number, count in enumerate(calls)]
    lines = [line for stream, _ in turns for line in stream]
    records = [record for _, journal in turns for record in journal]
    records = [record for at, record in enumerate(records) if at not in never]
    lane = Lane()
    lane.merge.following = following
    for from_stream, count, passes in [*steps, (True, len(lines), 0.0), (False, len(records), 0.0)]:
        lane.now += passes
        if from_stream:
            block, lines = lines[:count], lines[count:]
            lane.hear(b"".join(block))
        else:
            some, records = records[:count], records[count:]
            for record in some if following else ():
                lane.read(record)
        lane.merge.release()
        _nothing_is_kept(lane)
    lane.merge.release(now=True)
    _all_is_there(lane, len(calls))


def _nothing_is_kept(lane: Lane) -> None:
    """What is older than the limit is out; without a journal, everything is; and in order."""
    assert [event.seq for event in lane.got] == list(range(len(lane.got)))
    late = [at for at in lane.made[len(lane.got) :] if lane.now - at >= HOLD]
    assert not late
    assert lane.merge.held == (len(lane.got) < len(lane.made))
    if not lane.merge.following:
        assert len(lane.got) == len(lane.made)


def _all_is_there(lane: Lane, turns: int) -> None:
    assert len(lane.got) == len(lane.made)
    assert not lane.merge.held
    text = "".join(event.text for event in lane.got if isinstance(event, Text))
    assert text == "".join(f"turn {number + 1}. " for number in range(turns))
    ended = [event for event in lane.got if isinstance(event, ToolFinished)]
    assert len(ended) == len({event.id for event in ended})
    assert len(ended) == sum(isinstance(event, ToolStarted) for event in lane.got)
    missed = 0
    for event in ended:
        known = lane.known.get(event.id)
        if known is not None and known < lane.ended[event.id] + HOLD:
            assert event.output == f"true {event.id}"
        else:
            assert event.output in ("short", f"true {event.id}")
        missed += event.output == "short"
    assert lane.merge.missed == (missed if lane.merge.following else 0)
    thoughts = [event.text for event in lane.got if isinstance(event, Thought)]
    assert len(thoughts) == len(set(thoughts))
    tokens = [event.input for event in lane.got if isinstance(event, TokensUsed)]
    assert len(tokens) == len(set(tokens))


@given(_SCRIPT)
def test_the_fold_has_the_order_of_the_conversation(
    script: tuple[list[int], list[tuple[bool, int, float]], bool, set[int]],
) -> None:
    """Whatever came first: each thought and request in its turn, texts and tools as the model gave them."""
    calls, steps, *_ = script
    turns = [_turn(number + 1, count) for number, count in enumerate(calls)]
    lines = [line for stream, _ in turns for line in stream]
    records = [record for _, journal in turns for record in journal]
    lane = Lane()
    for from_stream, count, _ in [*steps, (True, len(lines), 0), (False, len(records), 0)]:
        if from_stream:
            block, lines = lines[:count], lines[count:]
            lane.hear(b"".join(block))
        else:
            some, records = records[:count], records[count:]
            for record in some:
                lane.read(record)
    lane.merge.release(now=True)
    fold = Accumulator()
    fold.add(lane.got)
    # A message without calls begins no turn for what comes after it: neither for the stream nor for the journal.
    expected: list[tuple[str, list[str], list[str]]] = [("", [], [])]
    for number, count in enumerate(calls):
        if number and calls[number - 1]:
            expected.append(("", [], []))
        text, thoughts, tools = expected[-1]
        tools += [f"{number + 1}-{call}" for call in range(count)]
        expected[-1] = (f"{text}turn {number + 1}. ", [*thoughts, f"thought {number + 1}"], tools)
    found = [
        (turn.text, [one.text for one in turn.thoughts], [tool.id for tool in turn.tools])
        for turn in turns_of(fold.text, fold.conversation())
    ]
    assert found == expected
    numbers = [turn.number for turn in turns_of(fold.text, fold.conversation())]
    assert numbers == list(range(1, len(expected) + 1))


def _ended(seq: int, call: str = "a", **fields: Any) -> ToolFinished:
    return ToolFinished(**_WHERE, seq=seq, id=call, name="x", input=None, status="ok", **fields)


def test_text_passes_at_once_where_no_tool_has_ended() -> None:
    """The hot path: no event is looked at."""
    lane = Lane()
    lane.merge.add([Text(**_WHERE, seq=0, text="x")], 10, ends_tool=False)
    assert (len(lane.got), lane.sizes) == (1, 10)


def test_the_end_of_a_tool_waits_and_what_is_behind_it() -> None:
    """Until its truth is known; what is in front of it passes."""
    lane = Lane()
    before, behind = Text(**_WHERE, seq=0, text="x"), Text(**_WHERE, seq=2, text="y")
    lane.merge.add([before, _ended(1)], 20)
    lane.merge.add([behind], 5, ends_tool=False)
    assert lane.got == [before]
    lane.now = HOLD - 0.01
    lane.merge.release()
    assert lane.merge.held
    lane.merge.add_truths({"a": Truth(output="true")})
    lane.merge.release()
    assert lane.got == [before, _ended(1, output="true"), behind]
    assert lane.sizes == 20 + 5 + len("true")
    assert lane.merge.missed == 0


def test_nobody_gives_up_before_the_journal_was_read() -> None:
    """The moment is over, since the machine was busy: other events do not push a tool out whose truth may be there."""
    lane = Lane()
    lane.merge.add([_ended(0)])
    lane.now = 2 * HOLD
    behind = Text(**_WHERE, seq=1, text="y")
    lane.merge.add([behind], ends_tool=False)
    assert lane.got == []
    lane.merge.add_truths({"a": Truth(output="true")})
    lane.merge.release()
    assert lane.got == [_ended(0, output="true"), behind]
    assert lane.merge.missed == 0


def test_what_never_comes_is_counted() -> None:
    """The end of the tool is told as it was, after a moment or when the run is over."""
    for now in (True, False):
        lane = Lane()
        lane.merge.add([_ended(0)])
        lane.now = 0.0 if now else HOLD
        lane.merge.release(now=now)
        assert lane.got == [_ended(0)]
        assert lane.merge.missed == 1


def test_a_subagents_tool_waits_for_nothing() -> None:
    """It comes from a journal itself."""
    lane = Lane()
    lane.merge.add([_ended(0, parent="p")])
    assert len(lane.got) == 1
    assert lane.merge.missed == 0
