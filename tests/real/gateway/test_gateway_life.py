"""The gateway can end during a run, serve fifty runs at once, and revoke each token when its run
ends."""

from __future__ import annotations

import http.client
import random
import time
from typing import Any

import anyio
import psutil
import pytest

import geminids
from fake_google import FakeGoogle
from gateway_runs import KEY, RELEASES, options_for
from geminids.gateway import Call, Reply, ReplyUsage, Request
from geminids.gateway import registry as host

pytestmark = pytest.mark.real


def answer_and_stall(request: Request) -> Reply | None:
    return Reply(text="half", stall=True) if request.method == "stream" else None


@pytest.mark.parametrize("release", RELEASES)
def test_the_gateway_ends_during_a_run(make_world: Any, release: str) -> None:
    """If the gateway ends during a run, the run fails within seconds with a hint. The next run
    starts a new gateway."""
    world = make_world(release)

    async def main(google: FakeGoogle) -> geminids.Result:
        async with geminids.open_run("hello", options_for(world, google)) as run:
            async for event in run:
                if isinstance(event, geminids.Text):
                    break
            gateway = host._host
            assert gateway is not None
            loop = gateway._server._loop
            assert loop is not None
            loop.call_soon_threadsafe(loop.stop)  # the server's task is not informed
            with anyio.fail_after(15):
                async for _ in run:
                    pass
        return run.result

    with FakeGoogle(answer_and_stall, with_key=KEY) as google:
        result = anyio.run(main, google)
    assert result.failure is not None
    assert (result.outcome, result.failure.kind, result.failure.retryable) == ("failed", "network", True)
    assert "gateway" in result.failure.message
    assert result.failure.hint
    with FakeGoogle([Reply(text="again")], with_key=KEY) as google:
        assert geminids.ask_sync("hello", options_for(world, google)).answer == "again"


def test_the_gateway_ends_during_chats(make_world: Any) -> None:
    """If the gateway ends, the active turn fails. Later turns of all chats use a new gateway, and
    the budget already spent still counts."""
    world = make_world("0.61.0")

    def script(request: Request) -> Reply | None:
        fine = Reply(text="fine", usage=ReplyUsage(input=10, output=1))
        return fine if "fine" in request.last_user_text else answer_and_stall(request)

    async def main(google: FakeGoogle) -> list[geminids.Result]:
        results = []
        options = options_for(world, google, max_requests=3)
        async with geminids.Pool(options) as pool, pool.chat() as chat, pool.chat() as silent:
            results += [await silent.ask("fine?"), await chat.ask("fine?")]
            async with chat.send("hello") as turn:
                async for event in turn:
                    if isinstance(event, geminids.Text):
                        break
                assert host._host is not None
                host._host.stop()
                with anyio.fail_after(15):
                    async for _ in turn:
                        pass
            results.append(turn.result)
            with anyio.fail_after(60):
                results += [await chat.ask("fine?"), await silent.ask("fine?"), await chat.ask("fine?")]
        return results

    with FakeGoogle(script, with_key=KEY) as google:
        results = anyio.run(main, google)
    outcomes = ["success", "success", "failed", "success", "success", "over_budget"]
    assert [result.outcome for result in results] == outcomes, [result.failure for result in results]


def test_a_token_ends_with_its_run(make_world: Any) -> None:
    """The gateway accepts the token of an active run. It refuses a token that was never issued, one
    whose run is over, and the API key."""
    world = make_world("0.61.0")
    tokens: list[str] = []

    def send(port: int, token: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        body = '{"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}'
        path = "/v1beta/models/gemini-3.8-flash:generateContent"
        connection.request("POST", path, body, {"x-goog-api-key": token, "content-type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        return status

    async def main(google: FakeGoogle) -> list[int]:
        statuses = []
        async with geminids.open_run("hello", options_for(world, google)) as other_run:
            async for event in other_run:
                if isinstance(event, geminids.Text):
                    break
            assert host._host is not None
            port = host._host._server.port
            async with geminids.open_run("hello", options_for(world, google)) as run:
                assert run.pid is not None
                # Between fork and exec, the child still shows its parent's environment.
                with anyio.fail_after(30):
                    while (token := psutil.Process(run.pid).environ().get("GEMINI_API_KEY")) is None:
                        await anyio.sleep(0.01)
                tokens.append(token)
                statuses.append(await anyio.to_thread.run_sync(send, port, tokens[0]))
            statuses.append(await anyio.to_thread.run_sync(send, port, tokens[0]))
            statuses.append(await anyio.to_thread.run_sync(send, port, "geminids-run-" + "0" * 48))
            statuses.append(await anyio.to_thread.run_sync(send, port, KEY))
        return statuses

    with FakeGoogle(answer_and_stall, with_key=KEY) as google:
        assert anyio.run(main, google) == [200, 403, 403, 403]


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_fifty_runs_at_once(make_world: Any) -> None:
    """Each of fifty runs has its own text and tokens, and the host's memory grows by less than 250
    MB."""
    world = make_world("0.61.0")
    process = psutil.Process()

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        number = int(request.last_user_text.split()[-1])
        if not request.turn_results:
            return Reply(calls=[Call("glob", {"pattern": f"*.{number}"})], usage=_tokens(number, 1))
        return Reply(text=_pieces(number), usage=_tokens(number, 2))

    async def main(google: FakeGoogle) -> dict[int, geminids.Result]:
        results: dict[int, geminids.Result] = {}
        limiter = anyio.CapacityLimiter(50)

        async def run_once(number: int) -> None:
            async with limiter:
                results[number] = await geminids.ask(
                    f"I am {number}", options_for(world, google, start_timeout=500)
                )

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(run_once, number)
        return results

    with FakeGoogle(script, with_key=KEY) as google:
        before, start = process.memory_info().rss, time.monotonic()
        results = anyio.run(main, google)
        print(f"{time.monotonic() - start:.1f} s, {(process.memory_info().rss - before) / 2**20:.1f} MB more")
        streamed = len([one for one in google.asked if one.request.method == "stream"])
    assert streamed == 100
    for number, result in results.items():
        assert result.ok, (number, result.failure)
        assert result.answer == "".join(_pieces(number))
        assert result.usage is not None
        assert (result.usage.input, result.usage.output) == (2_003 + 2 * number, 30 + 2 * number)
    # The results themselves are 50 MB of text.
    assert process.memory_info().rss - before < 250 * 2**20
    assert host._host is None


def _pieces(number: int) -> list[str]:
    """Return twenty different pieces of 50 kB. Fifty runs send 50 MB through the gateway."""
    return [random.Random(100 * number + piece).randbytes(25_000).hex() for piece in range(20)]


def _tokens(number: int, request: int) -> ReplyUsage:
    return ReplyUsage(input=1000 + number + request, output=10 * request + number, cached=0, thinking=0)
