"""Check the rules for the end of every run."""

from __future__ import annotations

import re
from typing import Any

from geminids import Finished

__all__ = ["check_ending"]


def check_ending(
    events: list[Any], outcome: str, kind: str | None = None, *, anew: bool = False, **fields: Any
) -> Any:
    """Check the rules for the end of every run, and the given values. Return the `Finished` event.

    `outcome`, `kind` and `fields` are the expected outcome, kind of failure and fields of the
    failure. `anew`: the requested session was missing, and the run started a new one.

    If a limit or the caller ended the run, the kind of the failure is the name of the outcome.
    """
    finished = events[-1]
    if outcome not in ("success", "failed"):
        kind = outcome
    failure = finished.failure
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event for event in events if isinstance(event, Finished)] == [finished]
    assert (finished.outcome, failure.kind if failure else None) == (outcome, kind), failure
    assert finished.clear_session == (kind == "session_not_found" or anew)
    if failure is not None:
        assert failure.hint
        assert failure.exit_code == (finished.exit_code if outcome == "failed" else None)
        assert finished.reason == failure.message
        assert not re.search(r'\{"|\n|^\s|API Error|geminids/homes', failure.message), failure.message
    assert {name: getattr(failure, name) for name in fields} == fields
    return finished
