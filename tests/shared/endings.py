"""The laws of every ending, for all tests that end a run."""

from __future__ import annotations

import re
from typing import Any

from geminids import Finished

__all__ = ["ended"]


def ended(
    events: list[Any], outcome: str, kind: str | None = None, *, anew: bool = False, **told: Any
) -> Any:
    """The laws of every ending, and what this one must say of itself; returns the `Finished`.

    `anew`: the session that was asked for was gone, and another one was begun.
    """
    finished = events[-1]
    failure = finished.failure
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event for event in events if isinstance(event, Finished)] == [finished]
    assert (finished.outcome, failure.kind if failure else None) == (outcome, kind), failure
    assert finished.clear_session == (kind == "session_not_found" or anew)
    if failure is not None:
        assert failure.hint
        assert failure.exit_code == finished.exit_code
        assert finished.reason == failure.message
        assert not re.search(r'\{"|\n|^\s|API Error|geminids/homes', failure.message), failure.message
    assert {name: getattr(failure, name) for name in told} == told
    return finished
