"""`run_parallel` with 20 real runs: 17 succeed, one crashes, one is aborted and one times out."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import anyio
import pytest

from geminids.adapters import AgentTask, run_parallel
from geminids.adapters.sublang import AgentEvent, AgentOptions, GeminiAdapter

pytestmark = [pytest.mark.real, pytest.mark.deep, pytest.mark.timeout(400)]

_CRASHES, _ABORTED, _HANGS = "worker 03.", "worker 07.", "worker 11."


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_twenty_runs_at_once(make_world: Any, backend: str) -> None:
    """A crash, an abort and a time-out each end only their own run. The other 17 runs succeed, and
    the events of each run arrive in order."""
    world = make_world("0.61.0")
    when = world.gateway.when
    names = [f"worker {number:02}." for number in range(20)]
    for name in names:
        if name == _CRASHES:
            when(name, text="I go. ", calls=[("run_shell_command", {"command": "kill -9 $PPID; sleep 60"})])
        elif name in (_ABORTED, _HANGS):
            when(name, text="half", stall=True)
        else:
            when(name, text=[f"{name} {piece} " for piece in range(5)])
    streams: dict[str | None, list[AgentEvent]] = defaultdict(list)

    async def main() -> None:
        abort = anyio.Event()
        tasks = [
            AgentTask(
                agent=GeminiAdapter(world.options(approval="yolo", timeout=45.0 if name == _HANGS else None)),
                prompt=name,
                options=AgentOptions(abort_signal=abort if name == _ABORTED else None),
                role=name,
            )
            for name in names
        ]
        async for event in run_parallel(tasks):
            streams[event.role].append(event)
            if event.role == _ABORTED and event.type == "text_delta":
                abort.set()

    anyio.run(main, backend=backend)
    assert sorted(map(str, streams)) == names
    for name in names:
        events = streams[name]
        kinds = [event.type for event in events]
        assert (kinds[0], kinds[-1], kinds.count("init"), kinds.count("done")) == ("init", "done", 1, 1)
        if name not in (_CRASHES, _ABORTED, _HANGS):
            deltas = [event.payload.delta for event in events if event.type == "text_delta"]
            assert "".join(deltas) == "".join(f"{name} {piece} " for piece in range(5))
            assert events[-1].payload.status == "success"
    statuses = [streams[name][-1].payload.status for name in (_CRASHES, _ABORTED, _HANGS)]
    error_codes = [
        [
            event.payload.code
            for event in streams[name]
            if event.type == "error" and not event.payload.recoverable
        ]
        for name in (_CRASHES, _ABORTED, _HANGS)
    ]
    assert statuses == ["error", "interrupted", "error"]
    assert error_codes == [["GEMINI_EXIT_ERROR"], [], ["GEMINI_TIMED_OUT"]]
    assert len({events[-1].payload.resume_token for events in streams.values()}) == 20
