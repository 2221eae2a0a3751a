"""Exact numbers: what the API has counted, request by request, is what the run tells, on both lanes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from complete import of
from fake_google import FakeGoogle
from geminids import Notice, TokensUsed, Usage
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told
from through_gateway import KEY, RELEASES, through

pytestmark = pytest.mark.real


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


def tokens(n: int) -> Told:
    """Other numbers for each request, so that two that are mixed up do not look alike."""
    return Told(input=1000 + n, output=10 * n, cached=100 + n, thinking=7 * n)


def plain(request: Request) -> Reply | None:
    """A tool, then an answer."""
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
    return Reply(text="done", usage=tokens(2))


def counted(google: FakeGoogle) -> list[tuple[int, int, int, int]]:
    """Input, cached, output and thinking of each request, as the server has told them."""
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    return sorted(tuple(asked.usage.get(name, 0) for name in names) for asked in google.asked if asked.usage)  # type: ignore[misc]


def told(events: list[Any]) -> list[tuple[int | None, ...]]:
    return sorted((one.input, one.cached, one.output, one.thinking) for one in of(events, TokensUsed))


def assert_exact(google: FakeGoogle, events: list[Any]) -> Usage:
    """Request by request, in the sum, and without a word about a difference."""
    assert events[-1].outcome == "success", events[-1].failure
    assert told(events) == counted(google)
    usage: Usage = events[-1].usage
    sums = google.counted()
    assert (usage.input, usage.output) == (sums["promptTokenCount"], sums["candidatesTokenCount"])
    assert (usage.cached, usage.thinking) == (sums["cachedContentTokenCount"], sums["thoughtsTokenCount"])
    assert usage.requests == len(counted(google))
    assert of(events, Notice, code="tokens") == []
    numbers = [one.request for one in of(events, TokensUsed)]
    assert set(numbers) == set(range(1, len(numbers) + 1))
    return usage


def test_a_fixed_model(make_world: Any, release: str) -> None:
    """Each request once, in the turn that it is of, with its times."""
    world = make_world(release)
    with FakeGoogle(plain, with_key=KEY) as google:
        events = list(geminids.stream_sync("hello", through(world, google)))
    assert_exact(google, events)
    first, second = of(events, TokensUsed)
    assert (first.role, first.turn, second.role, second.turn) == ("main", 1, "main", 2)
    assert None not in (first.first_byte_ms, first.duration_ms, first.waited_ms)


def test_the_router_of_auto(make_world: Any, release: str) -> None:
    """No session file holds its request; the gateway reports it with its role."""
    world = make_world(release)
    with FakeGoogle(plain, with_key=KEY) as google:
        events = list(geminids.stream_sync("hello", through(world, google, model="auto")))
    assert_exact(google, events)
    roles = [one.role for one in of(events, TokensUsed)]
    assert roles.count("main") == 2
    assert roles[0] == "router"


def test_a_subagent(make_world: Any, release: str) -> None:
    """Its requests are its own."""
    world = make_world(release)

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if "complete_task" in request.tools:
            if request.turn_results:
                result = {"response": "x", "result": {"response": "x"}, "report": REPORT}
                return Reply(calls=[Call("complete_task", result)], usage=tokens(4))
            return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(3))
        if not request.turn_results:
            return Reply(calls=[AGENT], usage=tokens(1))
        return Reply(text="done", usage=tokens(2))

    with FakeGoogle(script, with_key=KEY) as google:
        events = list(geminids.stream_sync("hello", through(world, google, approval="yolo")))
    assert_exact(google, events)
    roles = [one.role for one in of(events, TokensUsed)]
    assert roles.count("main") == 2
    assert roles.count("subagent") >= 2


REPORT = {"SummaryOfFindings": "x", "ExplorationTrace": ["x"], "RelevantLocations": []}


AGENT = Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})


@pytest.mark.deep
def test_a_compressed_conversation(make_world: Any, release: str) -> None:
    """The request that writes the summary counts as well, and is the CLI's own errand."""
    world = make_world(release)
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": {"compressionThreshold": 0.000001}}')
    (world.cwd / "long.txt").write_text("word " * 4000)

    def script(request: Request) -> Reply | None:
        if request.method == "generate":
            return Reply(text="<state_snapshot>a summary</state_snapshot>", usage=tokens(5), method="any")
        words = " ".join(f"word{number}" for number in range(2000))
        return Reply(text=words, usage=tokens(len(request.contents)))

    with FakeGoogle(script, with_key=KEY) as google:
        options = through(world, google)
        first = geminids.ask_sync("hello @long.txt", options)
        assert first.ok, first.failure
        before = len(google.asked)
        events = list(geminids.stream_sync("and now?", through(world, google, resume=first.session_id)))
        google.asked[:before] = []
    assert_exact(google, events)
    assert "compression" in [one.role for one in of(events, TokensUsed)]


def test_two_chats_of_one_process(make_world: Any) -> None:
    """Each chat's requests are its own, though one process sends them all."""
    world = make_world("0.61.0")
    results: dict[str, list[geminids.Result]] = {"a": [], "b": []}

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        whose = 1 if "I am a" in str(request.user_texts) else 50
        return Reply(text="done", pause=0.001, usage=tokens(whose + len(request.contents)))

    async def talk(chat: geminids.Chat, name: str) -> None:
        for turn in range(4):
            results[name].append(await chat.ask(f"I am {name}, turn {turn}"))

    async def main(google: FakeGoogle) -> int:
        async with geminids.Pool(through(world, google)) as pool:
            async with pool.chat() as one, pool.chat() as two, anyio.create_task_group() as tasks:
                tasks.start_soon(talk, one, "a")
                tasks.start_soon(talk, two, "b")
            return len(pool.status())

    with FakeGoogle(script, with_key=KEY) as google:
        assert anyio.run(main, google) == 1
        sent = {name: _of_chat(google, name) for name in results}
    for name, turns in results.items():
        assert [result.ok for result in turns] == [True] * 4
        seen = [one for result in turns for turn in result.turns for one in turn.tokens]
        assert [(one.input, one.output, one.thinking) for one in seen] == sent[name]
        assert [result.usage.requests for result in turns if result.usage] == [1] * 4


def _of_chat(google: FakeGoogle, name: str) -> list[tuple[int, int, int]]:
    return [
        (
            asked.usage["promptTokenCount"],
            asked.usage["candidatesTokenCount"],
            asked.usage["thoughtsTokenCount"],
        )
        for asked in google.asked
        if asked.usage and f"I am {name}" in str(asked.request.user_texts)
    ]
