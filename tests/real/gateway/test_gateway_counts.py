"""Exact counts: each run reports the tokens that the API counted, request by request, on both
transports."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from fake_google import FakeGoogle
from gateway_runs import KEY, RELEASES, options_for
from geminids import Notice, TokensUsed, Usage
from geminids.gateway import Call, Reply, ReplyUsage, Request

pytestmark = pytest.mark.real


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


def tokens(n: int) -> ReplyUsage:
    """Return other token counts for each request, so that a test notices mixed-up requests."""
    return ReplyUsage(input=1000 + n, output=10 * n, cached=100 + n, thinking=7 * n)


def answer_after_tool(request: Request) -> Reply | None:
    """Call a tool, then answer."""
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("glob", {"pattern": "*"})], usage=tokens(1))
    return Reply(text="done", usage=tokens(2))


def served_tokens(google: FakeGoogle) -> list[tuple[int, int, int, int]]:
    """Return input, cached, output and thinking tokens of each request, as the server reported
    them."""
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    return sorted(tuple(asked.usage.get(name, 0) for name in names) for asked in google.asked if asked.usage)  # type: ignore[misc]


def reported_tokens(events: list[Any]) -> list[tuple[int | None, ...]]:
    return sorted(
        (one.input, one.cached, one.output, one.thinking) for one in select_events(events, TokensUsed)
    )


def assert_exact(google: FakeGoogle, events: list[Any]) -> Usage:
    """Check that each request, their sum and their numbers are exact, and that no notice reports a
    difference."""
    assert events[-1].outcome == "success", events[-1].failure
    assert reported_tokens(events) == served_tokens(google)
    usage: Usage = events[-1].usage
    sums = google.counted()
    assert (usage.input, usage.output) == (sums["promptTokenCount"], sums["candidatesTokenCount"])
    assert (usage.cached, usage.thinking) == (sums["cachedContentTokenCount"], sums["thoughtsTokenCount"])
    assert usage.requests == len(served_tokens(google))
    assert select_events(events, Notice, code="tokens") == []
    numbers = [one.request for one in select_events(events, TokensUsed)]
    assert set(numbers) == set(range(1, len(numbers) + 1))
    return usage


def test_a_fixed_model(make_world: Any, release: str) -> None:
    """With a fixed model each request is reported once, in its turn, with its times."""
    world = make_world(release)
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        events = list(geminids.stream_sync("hello", options_for(world, google)))
    assert_exact(google, events)
    first, second = select_events(events, TokensUsed)
    assert (first.role, first.turn, second.role, second.turn) == ("main", 1, "main", 2)
    assert None not in (first.first_byte_ms, first.duration_ms, first.waited_ms)


def test_the_router_of_auto(make_world: Any, release: str) -> None:
    """The gateway reports the router's request with its role, although no session file has it."""
    world = make_world(release)
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        events = list(geminids.stream_sync("hello", options_for(world, google, model="auto")))
    assert_exact(google, events)
    roles = [one.role for one in select_events(events, TokensUsed)]
    assert roles.count("main") == 2
    assert roles[0] == "router"


def test_a_subagent(make_world: Any, release: str) -> None:
    """Requests of a subagent are reported with the role `subagent`."""
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
        events = list(geminids.stream_sync("hello", options_for(world, google, approval="yolo")))
    assert_exact(google, events)
    roles = [one.role for one in select_events(events, TokensUsed)]
    assert roles.count("main") == 2
    assert roles.count("subagent") >= 2


REPORT = {"SummaryOfFindings": "x", "ExplorationTrace": ["x"], "RelevantLocations": []}


AGENT = Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})


@pytest.mark.deep
def test_a_compressed_conversation(make_world: Any, release: str) -> None:
    """The request that writes the summary of a conversation is counted, with the role
    `compression`."""
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
        options = options_for(world, google)
        first = geminids.ask_sync("hello @long.txt", options)
        assert first.ok, first.failure
        before = len(google.asked)
        events = list(geminids.stream_sync("and now?", options_for(world, google, resume=first.session_id)))
        google.asked[:before] = []
    assert_exact(google, events)
    assert "compression" in [one.role for one in select_events(events, TokensUsed)]


def test_two_chats_of_one_process(make_world: Any) -> None:
    """Each of two chats reports only its own requests, although one process sends the requests of
    both."""
    world = make_world("0.61.0")
    results: dict[str, list[geminids.Result]] = {"a": [], "b": []}

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        offset = 1 if "I am a" in str(request.user_texts) else 50
        return Reply(text="done", pause=0.001, usage=tokens(offset + len(request.contents)))

    async def send_turns(chat: geminids.Chat, name: str) -> None:
        for turn in range(4):
            results[name].append(await chat.ask(f"I am {name}, turn {turn}"))

    async def main(google: FakeGoogle) -> int:
        async with geminids.Pool(options_for(world, google)) as pool:
            async with (
                pool.chat() as first_chat,
                pool.chat() as second_chat,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(send_turns, first_chat, "a")
                tasks.start_soon(send_turns, second_chat, "b")
            return len(pool.status())

    with FakeGoogle(script, with_key=KEY) as google:
        assert anyio.run(main, google) == 1
        sent = {name: _tokens_of_chat(google, name) for name in results}
    for name, turns in results.items():
        assert [result.ok for result in turns] == [True] * 4
        reported = [one for result in turns for turn in result.turns for one in turn.tokens]
        assert [(one.input, one.output, one.thinking) for one in reported] == sent[name]
        assert [result.usage.requests for result in turns if result.usage] == [1] * 4


def _tokens_of_chat(google: FakeGoogle, name: str) -> list[tuple[int, int, int]]:
    return [
        (
            asked.usage["promptTokenCount"],
            asked.usage["candidatesTokenCount"],
            asked.usage["thoughtsTokenCount"],
        )
        for asked in google.asked
        if asked.usage and f"I am {name}" in str(asked.request.user_texts)
    ]
