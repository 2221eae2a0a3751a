"""The one place that makes a `Finished`."""

from __future__ import annotations

import time
from typing import Any, Protocol

from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import Decision, EndedProcess, Finished, Usage
from geminids.run.cost import Bill, cost_of
from geminids.run.result import Result
from geminids.wire.endings import Ending

__all__ = ["Traces", "finished_of"]


class Traces(Protocol):
    """What a lane leaves behind: its session, its exit, and what it had to end."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def ended(self) -> tuple[EndedProcess, ...]: ...
    @property
    def complete(self) -> bool: ...
    @property
    def decisions(self) -> tuple[Decision, ...]: ...
    @property
    def bill(self) -> Bill | None: ...
    def redacted(self, text: str) -> str: ...


def finished_of(
    run_id: str,
    ending: Ending,
    traces: Traces | None,
    fold: Fold,
    ledger: Ledger,
    usage: Usage | None,
    *,
    began: float,
    clear_session: bool = False,
    conversation: bytes = b"",
    value: Any = None,
) -> tuple[Finished, Result]:
    """The last event and the result, the same for every lane; `traces` are None where nothing was started."""
    finished = Finished(
        at=int(time.time() * 1000),
        seq=ledger.next(),
        attempt=ledger.attempt,
        turn=ledger.turn,
        run_id=run_id,
        outcome=ending.outcome,
        failure=ending.failure,
        reason=ending.reason,
        # Once more: a secret whose halves stand before and after a tool call is whole only here.
        text=traces.redacted(fold.text) if traces else "",
        answer=traces.redacted(fold.answer) if traces else "",
        session_id=traces.session_id if traces else None,
        clear_session=ending.clear_session or clear_session,
        usage=usage,
        attempts=fold.attempts,
        exit_code=traces.exit_code if traces else None,
        duration_ms=int((time.monotonic() - began) * 1000),
        ended=traces.ended if traces else (),
        complete=traces.complete if traces else False,
        decisions=traces.decisions if traces else (),
        value=value,
        stall=ledger.stall if ending.outcome == "timed_out" else None,
        cost=cost_of(fold, ledger, usage, traces.bill, ending.outcome) if traces and traces.bill else None,
    )
    return finished, Result.of(finished, conversation)
