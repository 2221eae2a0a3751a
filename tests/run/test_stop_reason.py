"""No decision depends on the wording of a stop reason."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from geminids.run import run as run_module
from geminids.run import stopping
from geminids.run.headless import attempt as headless
from geminids.run.stall import watch
from geminids.run.stopping import StopKind, StopReason

SLEEPS = "out(INIT)\ntime.sleep(60)"
# How the CLI behaves, the options, and how the run ends.
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, str | None]]] = {
    "timeout": (SLEEPS, {"timeout": 1.0}, ("timed_out", None)),
    "idle_timeout": (SLEEPS, {"idle_timeout": 1.0}, ("timed_out", None)),
    "start_timeout": ("time.sleep(60)", {"start_timeout": 1.0}, ("timed_out", None)),
    "lingering": ("out(INIT)\nos.close(1)\ntime.sleep(60)", {"grace": 0.2}, ("failed", "cut_off")),
    "caller": (SLEEPS, {}, ("interrupted", None)),
}


def test_two_deadlines_at_once(stand_in: Any) -> None:
    """The time-out of the whole run is the reason, if it passes at the same moment as another one."""
    options = stand_in("time.sleep(60)", timeout=1.0, start_timeout=1.0)
    assert geminids.ask_sync("hello", options).reason == "timed out after 1 s"


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_outcomes_do_not_depend_on_wording(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch, name: str, reworded: bool
) -> None:
    """The outcome and the failure are the same, whatever the text says."""
    script, fields, ended = CASES[name]

    def reword(kind: StopKind, text: str) -> StopReason:
        return StopReason(kind, "any other words")

    if reworded:
        for module in (headless, run_module, stopping, watch):
            monkeypatch.setattr(module, "StopReason", reword)

    async def run() -> geminids.Result[Any]:
        async with geminids.open_run("hello", stand_in(script, **fields)) as opened:
            async for event in opened:
                if name == "caller" and isinstance(event, geminids.Started):
                    opened.stop()
        return opened.result

    result = anyio.run(run)
    assert (result.outcome, result.failure.kind if result.failure else None) == ended
    assert ((result.reason or "").startswith("any other words")) is reworded
