"""A run whose gateway is disturbed by the host program: it ends with a reason, or does not notice."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import anyio
import psutil
import pytest

import geminids
from fake_google import FakeGoogle
from geminids.gateway import Reply, Request
from geminids.gateway import registry as host
from through_gateway import KEY, through

pytestmark = pytest.mark.real


def stalls(request: Request) -> Reply | None:
    return Reply(text="half", stall=True) if request.method == "stream" else None


def test_the_listener_is_closed_under_a_run(make_world: Any) -> None:
    """The run fails within seconds and says why; the next run has a new gateway."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("hello", through(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text):
                    break
            assert host._host is not None and host._host._server._socket is not None
            os.close(host._host._server._socket.detach())
            with anyio.fail_after(15):
                async for _ in run:
                    pass
        return run.result

    with FakeGoogle(stalls, with_key=KEY) as google:
        result = anyio.run(main, google)
    assert result.failure is not None
    assert (result.outcome, result.failure.kind) == ("failed", "network")
    assert "listening socket" in result.failure.message
    with FakeGoogle([Reply(text="again")], with_key=KEY) as google:
        assert geminids.ask_sync("hello", through(world, google)).answer == "again"


def _look(port: int, pipe: Any) -> None:
    held = psutil.Process().net_connections("tcp")
    pipe.send([one for one in held if one.laddr.port == port])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_host_that_forks_under_a_run(make_world: Any) -> None:
    """A worker that is forked while a run is under way holds nothing of the gateway, and the run goes on."""
    world = make_world("0.61.0")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    async def main(google: FakeGoogle) -> tuple[geminids.Result, list[Any]]:
        held: list[Any] = []
        async with geminids.open_run("hello", through(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text) and not held:
                    assert host._host is not None
                    worker = context.Process(target=_look, args=(host._host._server.port, theirs))
                    worker.start()
                    held.append(ours.recv())
                    worker.join()
        return run.result, held

    script = [Reply(text=["one ", "two ", "three"], pause=0.5)]
    with FakeGoogle(script, with_key=KEY) as google:
        result, held = anyio.run(main, google)
    assert result.answer == "one two three", result.failure
    assert held == [[]]
