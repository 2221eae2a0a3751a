"""Events fold into the text and the answer of a run."""

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
        lane="headless",
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
def test_however_events_are_batched_they_fold_the_same(batches: list[list[Any]]) -> None:
    """Text is that of the last attempt, the answer what came after its last tool."""
    fold = Accumulator()
    for batch in batches:
        fold.add(batch)
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
    assert (fold.text, fold.answer, fold.attempts, fold.tool_calls) == (text, answer, attempts, calls)


@given(_EVENT)
def test_an_event_is_read_as_it_was_written(event: Any) -> None:
    """`decode_event` is the inverse of `encode_event`."""
    assert decode_event(encode_event(event)) == event


def test_the_session_of_the_last_attempt_that_knew_one() -> None:
    """An attempt without a session id does not take the known one away."""
    fold = Accumulator()
    fold.add([_started("one"), _started(None)])
    assert fold.session_id == "one"


def _thought(text: str, turn: int, parent: str | None = None) -> Thought:
    return Thought(**{**_WHERE, "turn": turn}, subject=None, text=text, parent=parent)


def _tool(call: str, turn: int = 1, parent: str | None = None) -> ToolFinished:
    return ToolFinished(**{**_WHERE, "turn": turn}, id=call, name="x", input=None, status="ok", parent=parent)


def _text(text: str, turn: int) -> Text:
    return Text(**{**_WHERE, "turn": turn}, text=text)


def test_turns_have_the_order_of_the_conversation() -> None:
    """A thought that came behind its text stands before it; a turn without text or tools is one too."""
    fold = Accumulator()
    fold.add([_started(), _text("a", 1), _text("b", 1), _thought("one", 1), _tool("t1")])
    fold.add([_thought("three", 3), _text("c", 2), _thought("two", 2), _tool("t2", 2)])
    found = [
        (turn.number, [one.text for one in turn.thoughts], turn.text)
        for turn in turns_of(fold.text, fold.conversation())
    ]
    assert found == [(1, ["one"], "ab"), (2, ["two"], "c"), (3, ["three"], "")]
    assert [[tool.id for tool in turn.tools] for turn in turns_of(fold.text, fold.conversation())] == [
        ["t1"],
        ["t2"],
        [],
    ]


def test_a_subagents_tools_stand_before_the_end_of_its_call() -> None:
    """However late they are told; those whose call is not known come last."""
    fold = Accumulator()
    fold.add([_tool("call-1"), _tool("x", parent="call-2"), _tool("y", parent="call-1"), _tool("call-2")])
    fold.add([_tool("z", parent="nobody"), _tool("w", parent="call-1")])
    (turn,) = turns_of(fold.text, fold.conversation())
    assert [tool.id for tool in turn.tools] == ["y", "w", "call-1", "x", "call-2", "z"]


def test_what_a_subagent_does_is_no_end_of_a_text() -> None:
    """Told late, behind the last words: the answer is whole all the same, and the call is not counted."""
    fold = Accumulator()
    fold.add([_text("the ", 1), _tool("x", parent="call"), _text("answer", 1)])
    assert (fold.answer, fold.tool_calls) == ("the answer", 0)


def test_a_new_attempt_begins_its_turns_anew() -> None:
    """Nothing of the attempt before is in them."""
    fold = Accumulator()
    fold.add([_started(), _text("old", 1), _thought("old", 1), _tool("old"), _started(), _text("new", 1)])
    (turn,) = turns_of(fold.text, fold.conversation())
    assert (turn.text, turn.thoughts, turn.tools) == ("new", (), ())


def test_turns_hold_the_text_as_it_was_masked() -> None:
    """A secret in two turns, or in one: the turns are the masked text, cut where they begin."""
    secret = "hunter2hunter2"
    redactor = Redactor([secret])
    fold = Accumulator()
    fold.add(
        [_text(f"it is {secret}. ", 1), _text("and hunter2", 2), _text("hunter2", 3), _text(" again", 3)]
    )
    text = redactor.text(fold.text)
    turns = turns_of(text, fold.conversation(redactor.text))
    assert text == "it is ***. and *** again"
    assert "".join(turn.text for turn in turns) == text
    assert [turn.number for turn in turns] == [1, 2, 3]
    assert turns[0].text == "it is ***. "


def test_much_is_packed_and_comes_out_as_it_went_in() -> None:
    """Megabytes of outputs, also where it is asked for twice, with more in between."""
    fold = Accumulator()
    tools = [_tool(f"{number}-{'x' * 1000}") for number in range(3000)]
    fold.add(tools[:2000])
    first = fold.conversation()
    assert len(first) < 200_000
    fold.add(tools[2000:])
    assert list(turns_of("", first)[0].tools) == tools[:2000]
    assert list(turns_of("", fold.conversation())[0].tools) == tools


def test_nothing_at_all_has_no_turns() -> None:
    """Neither for a run that told nothing, nor for one that never began."""
    assert turns_of("", Accumulator().conversation()) == ()
    assert turns_of("", b"") == ()
