"""The accumulator collects the text, the answer and the turns of a run from its events."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminids import Notice, Started, Text, Thought, ToolFinished, ToolStarted
from geminids.events.accumulator import Accumulator, turns_of
from geminids.events.model import decode_event, encode_event
from geminids.redact import Redactor

_WHERE: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}


def _started(session_id: str | None = "s") -> Started:
    return Started(
        **_WHERE,
        run_id="r",
        session_id=session_id,
        model=None,
        cwd="/",
        cli_version=None,
        transport="headless",
        pid=1,
    )


_EVENT = st.one_of(
    st.text(max_size=5).map(lambda text: Text(**_WHERE, text=text)),
    st.just(ToolStarted(**_WHERE, id="1", name="x", kind="other", title="x", input={"a": 1}, paths=("p",))),
    st.just(ToolFinished(**_WHERE, id="1", name="x", input=None, status="ok", output="o", duration_ms=3)),
    st.just(Notice(**_WHERE, level="info", code="noise", message="m")),
    st.sampled_from(["s", None]).map(_started),
)


@given(st.lists(st.lists(_EVENT, max_size=8), max_size=8))
def test_batches_do_not_matter(batches: list[list[Any]]) -> None:
    """The accumulator gives the same result, however its events are split into batches."""
    accumulator = Accumulator()
    for batch in batches:
        accumulator.add(batch)
    text, answer, attempts, calls = "", "", 0, 0
    for event in (event for batch in batches for event in batch):
        if isinstance(event, Text):
            text, answer = text + event.text, answer + event.text
        elif isinstance(event, (ToolStarted, ToolFinished)):
            answer = ""
            calls += isinstance(event, ToolStarted)
        elif isinstance(event, Started):
            text = answer = ""
            attempts += 1
    assert (accumulator.text, accumulator.answer, accumulator.attempts, accumulator.tool_calls) == (
        text,
        answer,
        attempts,
        calls,
    )


@given(_EVENT)
def test_decoding_inverts_encoding(event: Any) -> None:
    """`decode_event` is the inverse of `encode_event`."""
    assert decode_event(encode_event(event)) == event


def test_an_attempt_without_a_session_keeps_the_known_one() -> None:
    """An attempt without a session id keeps the id of an earlier attempt."""
    accumulator = Accumulator()
    accumulator.add([_started("one"), _started(None)])
    assert accumulator.session_id == "one"


def _thought(text: str, turn: int, parent: str | None = None) -> Thought:
    return Thought(**{**_WHERE, "turn": turn}, subject=None, text=text, parent=parent)


def _tool(call: str, turn: int = 1, parent: str | None = None) -> ToolFinished:
    return ToolFinished(**{**_WHERE, "turn": turn}, id=call, name="x", input=None, status="ok", parent=parent)


def _text(text: str, turn: int) -> Text:
    return Text(**{**_WHERE, "turn": turn}, text=text)


def test_turns_have_the_order_of_the_conversation() -> None:
    """Events are sorted into their turns, also if a thought arrives after its text. A turn can have
    a thought only."""
    accumulator = Accumulator()
    accumulator.add([_started(), _text("a", 1), _text("b", 1), _thought("one", 1), _tool("t1")])
    accumulator.add([_thought("three", 3), _text("c", 2), _thought("two", 2), _tool("t2", 2)])
    summary = [
        (turn.number, [one.text for one in turn.thoughts], turn.text)
        for turn in turns_of(accumulator.text, accumulator.conversation())
    ]
    assert summary == [(1, ["one"], "ab"), (2, ["two"], "c"), (3, ["three"], "")]
    assert [
        [tool.id for tool in turn.tools] for turn in turns_of(accumulator.text, accumulator.conversation())
    ] == [
        ["t1"],
        ["t2"],
        [],
    ]


def test_a_subagents_tools_stand_before_the_end_of_its_call() -> None:
    """The tools of a subagent are listed before its call, even if they arrive later. Tools of an
    unknown call come last."""
    accumulator = Accumulator()
    accumulator.add(
        [_tool("call-1"), _tool("x", parent="call-2"), _tool("y", parent="call-1"), _tool("call-2")]
    )
    accumulator.add([_tool("z", parent="nobody"), _tool("w", parent="call-1")])
    (turn,) = turns_of(accumulator.text, accumulator.conversation())
    assert [tool.id for tool in turn.tools] == ["y", "w", "call-1", "x", "call-2", "z"]


def test_a_subagents_tool_does_not_end_the_answer() -> None:
    """A subagent's tool between two pieces of text does not start a new answer and is not counted
    as a call."""
    accumulator = Accumulator()
    accumulator.add([_text("the ", 1), _tool("x", parent="call"), _text("answer", 1)])
    assert (accumulator.answer, accumulator.tool_calls) == ("the answer", 0)


def test_a_new_attempt_has_its_own_turns() -> None:
    """The turns of a new attempt contain nothing of the attempt before."""
    accumulator = Accumulator()
    accumulator.add(
        [_started(), _text("old", 1), _thought("old", 1), _tool("old"), _started(), _text("new", 1)]
    )
    (turn,) = turns_of(accumulator.text, accumulator.conversation())
    assert (turn.text, turn.thoughts, turn.tools) == ("new", (), ())


def test_turns_have_the_masked_text() -> None:
    """A secret within one turn or across two turns is masked. The texts of the turns join to the
    masked text."""
    secret = "hunter2hunter2"
    redactor = Redactor([secret])
    accumulator = Accumulator()
    accumulator.add(
        [_text(f"it is {secret}. ", 1), _text("and hunter2", 2), _text("hunter2", 3), _text(" again", 3)]
    )
    text = redactor.text(accumulator.text)
    turns = turns_of(text, accumulator.conversation(redactor.text))
    assert text == "it is ***. and *** again"
    assert "".join(turn.text for turn in turns) == text
    assert [turn.number for turn in turns] == [1, 2, 3]
    assert turns[0].text == "it is ***. "


def test_many_tools_are_packed_without_loss() -> None:
    """Megabytes of tools are packed small and unpacked unchanged, also if `conversation()` is
    called twice with more events in between."""
    accumulator = Accumulator()
    tools = [_tool(f"{number}-{'x' * 1000}") for number in range(3000)]
    accumulator.add(tools[:2000])
    first = accumulator.conversation()
    assert len(first) < 200_000
    accumulator.add(tools[2000:])
    assert list(turns_of("", first)[0].tools) == tools[:2000]
    assert list(turns_of("", accumulator.conversation())[0].tools) == tools


def test_a_run_without_events_has_no_turns() -> None:
    """A run without events, or without a stored conversation, has no turns."""
    assert turns_of("", Accumulator().conversation()) == ()
    assert turns_of("", b"") == ()
