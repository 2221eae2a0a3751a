"""The host program disturbs the gateway of a run: the run fails with a reason, or continues."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import anyio
import psutil
import pytest

import geminids
from fake_google import FakeGoogle
from gateway_runs import KEY, options_for
from geminids.gateway import Reply, Request
from geminids.gateway import registry as host

pytestmark = pytest.mark.real


def answer_and_stall(request: Request) -> Reply | None:
    return Reply(text="half", stall=True) if request.method == "stream" else None


def test_the_listener_is_closed_under_a_run(make_world: Any) -> None:
    """If the host closes the gateway's listening socket, the run fails within seconds and gives the
    reason. The next run has a new gateway."""
    world = make_world("0.61.0")

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("hello", options_for(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text):
                    break
            assert host._host is not None and host._host._server._socket is not None
            os.close(host._host._server._socket.detach())
            with anyio.fail_after(15):
                async for _ in run:
                    pass
        return run.result

    with FakeGoogle(answer_and_stall, with_key=KEY) as google:
        result = anyio.run(main, google)
    assert result.failure is not None
    assert (result.outcome, result.failure.kind) == ("failed", "network")
    assert "listening socket" in result.failure.message
    with FakeGoogle([Reply(text="again")], with_key=KEY) as google:
        assert geminids.ask_sync("hello", options_for(world, google)).answer == "again"


def _send_connections(port: int, pipe: Any) -> None:
    held = psutil.Process().net_connections("tcp")
    pipe.send([one for one in held if one.laddr.port == port])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_worker_holds_no_socket_of_the_gateway(make_world: Any) -> None:
    """A worker that is forked during a run holds no socket of the gateway, and the run
    continues."""
    world = make_world("0.61.0")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    async def main(google: FakeGoogle) -> tuple[geminids.Result, list[Any]]:
        held: list[Any] = []
        async with geminids.open_run("hello", options_for(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text) and not held:
                    assert host._host is not None
                    worker = context.Process(target=_send_connections, args=(host._host._server.port, theirs))
                    worker.start()
                    held.append(ours.recv())
                    worker.join()
        return run.result, held

    script = [Reply(text=["one ", "two ", "three"], pause=0.5)]
    with FakeGoogle(script, with_key=KEY) as google:
        result, held = anyio.run(main, google)
    assert result.answer == "one two three", result.failure
    assert held == [[]]
