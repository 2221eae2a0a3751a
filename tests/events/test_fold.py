"""Events fold into the text and the answer of a run."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminids import Notice, Started, Text, ToolFinished, ToolStarted
from geminids.events.fold import Fold
from geminids.events.model import decode_event, encode_event

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
    fold = Fold()
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
    fold = Fold()
    fold.add([_started("one"), _started(None)])
    assert fold.session_id == "one"
