"""What a headless run tells first: what in the folder has no power over it, and that it has started."""

from __future__ import annotations

import time

from geminids.events.ledger import Ledger
from geminids.events.model import Event, Started
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.redact import Redactor
from geminids.run.without_power import without_power

__all__ = ["first_words"]


def first_words(
    plan: Plan, options: Options, run_id: str, pid: int, ledger: Ledger, redactor: Redactor
) -> list[Event]:
    """The events of a run whose CLI has just been spawned."""
    told: list[Event] = [*without_power(plan.neutralised, ledger)]
    told.append(
        Started(
            at=int(time.time() * 1000),
            seq=ledger.next(),
            attempt=ledger.attempt,
            turn=ledger.turn,
            run_id=run_id,
            session_id=plan.session_id or options.resume,
            model=options.model,
            cwd=plan.cwd,
            cli_version=plan.gemini.version,
            lane="headless",
            pid=pid,
            approval=options.approval,
            prompt=redactor.text(plan.prompt),
        )
    )
    return told
