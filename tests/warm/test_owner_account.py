"""What the owner tells of a run, and what it does not tell any more, as events and a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from geminids.events.model import Event, Finished, Notice, Started, Text, ToolFinished
from geminids.events.numbering import EventNumbers
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.recorder import RunRecorder
from geminids.warm.owner.owner_account import OWNER_GONE, Account
from geminids.warm.owner.owner_wire import Cold, as_line, told_in


def _event(kind: type[Any], seq: int, turn: int = 1, **fields: Any) -> Any:
    return kind(at=0, seq=seq, attempt=1, turn=turn, **fields)


def _started(seq: int) -> Started:
    made: Started = _event(
        Started,
        seq,
        run_id="run-1",
        session_id="s-1",
        model=None,
        cwd="/w",
        cli_version="0.61.0",
        lane="warm",
        pid=1,
    )
    return made


def _finished(seq: int, text: str = "", outcome: Any = "success", reason: str | None = None) -> Finished:
    failure = Failure(kind="config", message="x", retryable=False, hint="y") if outcome == "failed" else None
    made: Finished = _event(
        Finished,
        seq,
        run_id="run-1",
        outcome=outcome,
        failure=failure,
        reason=reason,
        text=text,
        answer=text,
        session_id="s-1",
        clear_session=False,
        usage=None,
        attempts=1,
        exit_code=None,
        duration_ms=1,
        ended=(),
        complete=True,
    )
    return made


def _told(recorder: RunRecorder) -> list[Event]:
    async def take() -> list[Event]:
        recorder.close()
        found: list[Event] = []
        while (batch := await recorder.take()) is not None:
            found += batch
        return found

    return anyio.run(take)


def _account(told: Sequence[Any], *, stopped: bool = False) -> tuple[Account, RunRecorder]:
    recorder = RunRecorder()
    account = Account(recorder)
    for one in told:
        # Over the wire and back.
        account.take(told_in(as_line(one)), stopped=stopped)
    return account, recorder


def test_events_pass_as_they_are_and_fold_into_the_result() -> None:
    """The result has the conversation, turn by turn."""
    tool = _event(ToolFinished, 3, id="t", name="read_file", input={"a": 1}, status="ok")
    events = [
        _event(Notice, 0, level="info", code="x", message="before"),
        _started(1),
        _event(Text, 2, text="Let me see. "),
        tool,
        _event(Text, 4, turn=2, text="Done."),
        _finished(5, "Let me see. Done."),
    ]
    account, recorder = _account(events)
    assert _told(recorder) == events
    assert account.result is not None
    assert [(turn.text, turn.tools) for turn in account.result.turns] == [
        ("Let me see. ", (tool,)),
        ("Done.", ()),
    ]


def test_a_secret_that_the_owner_has_masked_stays_masked() -> None:
    """Its halves came before and after a tool: the last word is the owner's."""
    events = [
        _started(0),
        _event(Text, 1, text="key-"),
        _event(Text, 2, turn=2, text="abcdef!"),
        _finished(3, "***!"),
    ]
    account, _ = _account(events)
    assert account.result is not None
    assert account.result.text == "***!"
    assert "".join(turn.text for turn in account.result.turns) == "***!"


def test_a_run_that_was_never_begun_can_begin_elsewhere() -> None:
    """The owner says why, or could open no session: nothing of it is told, and nothing is lost."""
    notice = _event(Notice, 0, level="info", code="x", message="before")
    for told, why in (
        ([Cold(why="too cold")], "too cold"),
        ([notice, _finished(1, outcome="failed", reason="no auth")], "no auth"),
    ):
        account, recorder = _account(told)
        assert account.over
        assert (account.cold, account.result) == (why, None)
        assert _told(recorder) == []


def test_a_run_that_was_stopped_is_not_begun_elsewhere() -> None:
    """Nobody wants it any more."""
    account, recorder = _account([_finished(0, outcome="failed", reason="x")], stopped=True)
    assert account.cold is None
    assert len(_told(recorder)) == 1


def test_a_failure_after_the_start_is_the_runs_own() -> None:
    """The prompt may have been sent: it is not sent twice."""
    account, _ = _account([_started(0), _finished(1, outcome="failed", reason="x")])
    assert account.cold is None
    assert account.result is not None
    assert account.result.outcome == "failed"


def test_an_owner_that_goes_leaves_an_end_and_the_text_so_far() -> None:
    """Exactly one `Finished`, last, with the next number."""
    account, recorder = _account([_started(0), _event(Text, 1, text="half an ans")])
    account.finish(OWNER_GONE, 0.0)
    finished = _told(recorder)[-1]
    assert isinstance(finished, Finished)
    assert (finished.seq, finished.outcome, finished.text) == (2, "failed", "half an ans")
    assert finished.session_id == "s-1"
    assert finished.failure is not None
    assert (finished.failure.kind, finished.failure.retryable) == ("crashed", True)


def test_what_came_before_the_start_is_told_where_it_ends_there() -> None:
    """A run that is interrupted before it began keeps its notices."""
    notice = EventNumbers().notice("info", "x", "before")
    account, recorder = _account([notice])
    account.finish(Ending("interrupted", "by you"), 0.0)
    first, last = _told(recorder)
    assert first == notice
    assert isinstance(last, Finished)
    assert (last.seq, last.outcome, last.reason) == (1, "interrupted", "by you")
