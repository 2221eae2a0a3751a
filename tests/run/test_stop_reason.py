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
# The script of the fake CLI, the options, and the expected outcome and failure kind.
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, str | None]]] = {
    "timeout": (SLEEPS, {"timeout": 1.0}, ("timed_out", "timed_out")),
    "idle_timeout": (SLEEPS, {"idle_timeout": 1.0}, ("timed_out", "timed_out")),
    "start_timeout": ("time.sleep(60)", {"start_timeout": 1.0}, ("timed_out", "timed_out")),
    "lingering": ("out(INIT)\nos.close(1)\ntime.sleep(60)", {"grace": 0.2}, ("failed", "cut_off")),
    "caller": (SLEEPS, {}, ("interrupted", "interrupted")),
}


def test_two_deadlines_at_once(fake_cli: Any) -> None:
    """If the timeout of the run and another deadline pass at the same moment, the reason is the
    timeout of the run."""
    options = fake_cli("time.sleep(60)", timeout=1.0, start_timeout=1.0)
    assert geminids.ask_sync("hello", options).reason == "timed out after 1 s"


@pytest.mark.parametrize("reworded", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_outcomes_do_not_depend_on_wording(
    fake_cli: Any, monkeypatch: pytest.MonkeyPatch, name: str, reworded: bool
) -> None:
    """The outcome and the failure are the same with any text of the stop reason."""
    script, fields, expected = CASES[name]

    def reword(kind: StopKind, text: str) -> StopReason:
        return StopReason(kind, "any other words")

    if reworded:
        for module in (headless, run_module, stopping, watch):
            monkeypatch.setattr(module, "StopReason", reword)

    async def run() -> geminids.Result[Any]:
        async with geminids.open_run("hello", fake_cli(script, **fields)) as opened:
            async for event in opened:
                if name == "caller" and isinstance(event, geminids.Started):
                    opened.stop()
        return opened.result

    result = anyio.run(run)
    assert (result.outcome, result.failure.kind if result.failure else None) == expected
    assert ((result.reason or "").startswith("any other words")) is reworded
