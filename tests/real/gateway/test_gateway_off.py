"""`gateway="off"`: options that need the gateway are refused before the start, and the cost is an
estimate."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from fake_google import FakeGoogle
from geminids import Notice, OptionsError, Started
from geminids.gateway import Call, Reply, ReplyUsage, Request
from sign_ins import KEY, SIGN_INS, options_for_server, paid_requests, price

pytestmark = pytest.mark.real
deep = pytest.mark.deep

NEEDS_THE_GATEWAY: dict[str, Any] = {
    "max_requests": 3,
    "max_tokens": 1_000,
    "max_budget": 0.5,
    "day_requests": 3,
    "day_tokens": 1_000,
    "day_budget": 0.5,
    "requests_per_minute": 10,
    "only_models": ("gemini-*",),
    "key_from": "file:key",
    "record": "recorded.jsonl",
    "replay": "recorded.jsonl",
}


def script(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    if not request.turn_results:
        usage = ReplyUsage(input=1_000, output=10, cached=400, thinking=0)
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=usage)
    return Reply(text="done", usage=ReplyUsage(input=2_000, output=20, cached=0, thinking=0))


@pytest.fixture
def world(make_world: Any) -> Any:
    return make_world("0.61.0")


@pytest.fixture
def google(world: Any) -> Iterator[Any]:
    with SIGN_INS["key"].serve(script, world.root) as google:
        yield google


def assert_nothing_happened(world: Any, google: FakeGoogle) -> None:
    """Check that the API received no request and that no CLI was started: a CLI would have written
    into its home."""
    assert (google.asked, google.connections) == ([], 0)
    assert not (world.home / ".gemini").exists()
    assert not Path(world.places.root, "homes").exists()


@pytest.mark.parametrize("name", NEEDS_THE_GATEWAY)
def test_each_option_that_needs_the_gateway_is_refused(world: Any, google: Any, name: str) -> None:
    """`open_run`, `Pool` and `Pool.chat` refuse each option that needs the gateway, and name the
    option."""
    options = options_for_server(world, google, gateway="off", **{name: NEEDS_THE_GATEWAY[name]})
    with pytest.raises(OptionsError, match=rf"\b{name}\b.*gateway"):
        geminids.open_run("hello", options)
    with pytest.raises(OptionsError, match=rf"\b{name}\b.*gateway"):
        geminids.Pool(options)

    async def open_chat() -> None:
        async with geminids.Pool(options_for_server(world, google)) as pool:
            pool.chat(gateway="off", **{name: NEEDS_THE_GATEWAY[name]})

    with pytest.raises(OptionsError, match=rf"\b{name}\b.*gateway"):
        anyio.run(open_chat)
    assert_nothing_happened(world, google)


def test_a_shared_budget_is_refused(world: Any, google: Any) -> None:
    """A `Budget` needs the gateway too: a run and a chat turn with one fail before a process is
    started."""
    options = options_for_server(world, google, gateway="off")

    async def main() -> list[list[Any]]:
        budget = geminids.Budget(requests=5)
        async with geminids.open_run("hello", options, budget=budget) as run:
            run_events = [event async for event in run]
        async with geminids.Pool(options, budget=geminids.Budget(requests=5)) as pool, pool.chat() as chat:
            return [run_events, [event async for event in chat.send("hello")]]

    for events in anyio.run(main):
        failure = events[-1].failure
        assert failure is not None
        assert failure.kind == "bad_option"
        assert "`budget` needs the gateway" in failure.message
        assert "gateway" in failure.hint
        assert select_events(events, Started) == []
    assert_nothing_happened(world, google)


def test_the_command_names_the_option(world: Any, google: Any) -> None:
    """`geminids run --gateway off --max-requests 3` fails with a message that names the option and
    the gateway."""
    argv = [sys.executable, "-m", "geminids", "run", "hello", "--gateway=off", "--max-requests=3"]
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp), **google.env}
    done = subprocess.run(
        [*argv, f"--cwd={world.cwd}"], env=env, capture_output=True, text=True, timeout=60, stdin=-3
    )
    assert done.returncode not in (0, 1)
    assert "max_requests" in done.stderr or "--max-requests" in done.stderr
    assert "gateway" in done.stderr
    assert "Traceback" not in done.stderr
    assert_nothing_happened(world, google)


def run_chat(options: geminids.Options) -> list[Any]:
    async def main() -> list[Any]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    return anyio.run(main)


@pytest.mark.parametrize("name", ["key", pytest.param("vertex_key", marks=deep)])
@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_a_run_without_limits_works(world: Any, name: str, transport: str) -> None:
    """The CLI sends its requests to the API itself, with the key. The cost is an estimate: the list
    price of the tokens that the CLI reports."""
    sign_in = SIGN_INS[name]
    with sign_in.serve(script, world.root) as google:
        options = options_for_server(world, google, gateway="off")
        events: list[Any] = (
            [*geminids.stream_sync("hello", options)] if transport == "headless" else run_chat(options)
        )
        asked = paid_requests(google)
        assert {one.key for one in google.asked} == {KEY}
    finished = events[-1]
    assert (finished.outcome, finished.answer) == ("success", "done"), finished.failure
    assert len(asked) == 2
    assert finished.cost.basis == "estimate"
    expected = sum(price(one.usage) for one in asked)
    assert (finished.cost.list_price, finished.cost.usd) == (expected, expected if sign_in.bills else None)
    # The caller chose this, so there is no warning.
    assert select_events(events, Notice, code="gateway") == []
