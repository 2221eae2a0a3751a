"""Tests of `Account`: the owner's messages about a run become events and a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from geminids.events.model import Event, Finished, Notice, Started, Text, ToolFinished
from geminids.events.numbering import EventNumbers
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure
from geminids.run.recorder import RunRecorder
from geminids.warm.owner.account import OWNER_GONE, Account
from geminids.warm.owner.protocol import NotServed, as_line, decode_owner_messages


def _event(kind: type[Any], seq: int, turn: int = 1, **fields: Any) -> Any:
    return kind(at=0, seq=seq, attempt=1, turn=turn, **fields)


def _started(seq: int) -> Started:
    started: Started = _event(
        Started,
        seq,
        run_id="run-1",
        session_id="s-1",
        model=None,
        cwd="/w",
        cli_version="0.61.0",
        transport="warm",
        pid=1,
    )
    return started


def _finished(seq: int, text: str = "", outcome: Any = "success", reason: str | None = None) -> Finished:
    failure = Failure(kind="config", message="x", retryable=False, hint="y") if outcome == "failed" else None
    finished: Finished = _event(
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
    return finished


def _emitted_events(recorder: RunRecorder) -> list[Event]:
    async def take() -> list[Event]:
        recorder.close()
        events: list[Event] = []
        while (batch := await recorder.take()) is not None:
            events += batch
        return events

    return anyio.run(take)


def _account(messages: Sequence[Any], *, stopped: bool = False) -> tuple[Account, RunRecorder]:
    recorder = RunRecorder()
    account = Account(recorder)
    for message in messages:
        # Encode and decode, as over the socket.
        account.take(decode_owner_messages(as_line(message)), stopped=stopped)
    return account, recorder


def test_events_are_passed_on_and_added_to_the_result() -> None:
    """The events of the owner are passed on unchanged; the result has their text and tools, turn by
    turn."""
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
    assert _emitted_events(recorder) == events
    assert account.result is not None
    assert [(turn.text, turn.tools) for turn in account.result.turns] == [
        ("Let me see. ", (tool,)),
        ("Done.", ()),
    ]


def test_a_secret_that_the_owner_has_masked_stays_masked() -> None:
    """The result takes its text from the owner's `Finished`: a secret whose halves came in two
    events stays masked."""
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


def test_a_run_that_was_not_started_can_run_elsewhere() -> None:
    """If the owner did not start a run, `cold` is the reason, and neither an event nor a result is
    passed on."""
    notice = _event(Notice, 0, level="info", code="x", message="before")
    for messages, reason in (
        ([NotServed(why="too cold")], "too cold"),
        ([notice, _finished(1, outcome="failed", reason="no auth")], "no auth"),
    ):
        account, recorder = _account(messages)
        assert account.over
        assert (account.cold, account.result) == (reason, None)
        assert _emitted_events(recorder) == []


def test_a_stopped_run_does_not_run_elsewhere() -> None:
    """If the caller stopped a run before its start, it is not run elsewhere, and its `Finished` is
    passed on."""
    account, recorder = _account([_finished(0, outcome="failed", reason="x")], stopped=True)
    assert account.cold is None
    assert len(_emitted_events(recorder)) == 1


def test_a_failure_after_the_start_does_not_run_elsewhere() -> None:
    """A failure after `Started` is the result of the run: it is not run elsewhere, because the
    prompt may have been sent."""
    account, _ = _account([_started(0), _finished(1, outcome="failed", reason="x")])
    assert account.cold is None
    assert account.result is not None
    assert account.result.outcome == "failed"


def test_an_owner_that_disconnects_leaves_a_result() -> None:
    """If the owner disconnects, the last event is a `Finished` with the next number and the text so
    far."""
    account, recorder = _account([_started(0), _event(Text, 1, text="half an ans")])
    account.finish(OWNER_GONE, 0.0)
    finished = _emitted_events(recorder)[-1]
    assert isinstance(finished, Finished)
    assert (finished.seq, finished.outcome, finished.text) == (2, "failed", "half an ans")
    assert finished.session_id == "s-1"
    assert finished.failure is not None
    assert (finished.failure.kind, finished.failure.retryable) == ("crashed", True)


def test_notices_before_an_interrupted_start_are_passed_on() -> None:
    """A run that is interrupted before its start still passes on the notices that came before."""
    notice = EventNumbers().notice("info", "x", "before")
    account, recorder = _account([notice])
    account.finish(Ending("interrupted", "by you"), 0.0)
    first, last = _emitted_events(recorder)
    assert first == notice
    assert isinstance(last, Finished)
    assert (last.seq, last.outcome, last.reason) == (1, "interrupted", "by you")
