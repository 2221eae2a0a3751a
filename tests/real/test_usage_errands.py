"""What the CLI asks for itself in runs of ours is in `geminids usage`, and nothing is there twice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told
from geminids.sessions import fork
from geminids.sessions.usage import stored_usage
from geminids.sessions.usage_errands import with_errands
from through_gateway import KEY, RELEASES, through

pytestmark = pytest.mark.real


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


def tokens(n: int) -> Told:
    """Other numbers for each request, so that two that are mixed up do not look alike."""
    return Told(input=1000 + n, output=10 * n, cached=100 + n, thinking=7 * n)


def searching() -> Any:
    """A search in the web, which is an errand of the CLI's own, then an answer; and other numbers each time."""
    seen: list[Request] = []

    def script(request: Request) -> Reply | None:
        seen.append(request)
        if request.method == "generate":
            # The search; the router has its own answer.
            search = b"googleSearch" in request.raw
            return Reply(text="found", usage=tokens(len(seen)), method="any") if search else None
        if not request.turn_results:
            return Reply(
                calls=[Call("google_web_search", {"query": f"pears {len(seen)}"})], usage=tokens(len(seen))
            )
        return Reply(text="done", usage=tokens(len(seen)))

    return script


def counted(google: FakeGoogle) -> list[tuple[int, int, int, int]]:
    """Input, cached, output and thinking of each request, as the server has told them."""
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    return sorted(tuple(asked.usage.get(name, 0) for name in names) for asked in google.asked if asked.usage)  # type: ignore[misc]


def stored(world: Any, **only: Any) -> list[Any]:
    found = stored_usage(home="user", environ={"HOME": str(world.home)}, places=world.places)
    return with_errands(found, world.places, **only)


def each(usages: list[Any]) -> list[tuple[int, int, int, int]]:
    told = [request.tokens for one in usages for request in one.requests]
    return sorted((one.input, one.cached, one.output, one.thinking) for one in told)


def usage(world: Any, *words: str) -> Any:
    """What a user is told."""
    environ = {**os.environ, "HOME": str(world.home), "TZ": "UTC"}
    ran = subprocess.run(
        [sys.executable, "-m", "geminids", "usage", "--json", *words],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(ran.stdout)


def test_as_the_api_has_counted(make_world: Any, release: str) -> None:
    """With `auto`, a search and a resumed and a forked session: request by request what the server told, once."""
    world = make_world(release)
    with FakeGoogle(searching(), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo")
        first = geminids.ask_sync("look for pears", options)
        assert first.outcome == "success" and first.session_id is not None
        again = through(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("and again", again).outcome == "success"
    fork(first.session_id, world.cwd, home="user", environ={"HOME": str(world.home)}, places=world.places)
    assert each(stored(world)) == counted(google)
    report, sums = usage(world), google.counted()
    generated = [one for one in google.asked if one.usage and one.request.method == "generate"]
    # A search each, and the router's word before it; 0.24.0 has no router.
    assert len(generated) == (2 if release == "0.24.0" else 4)
    total = report["total"]
    assert (total["requests"], total["errands"]) == (len(counted(google)), len(generated))
    assert (total["input"], total["output"]) == (sums["promptTokenCount"], sums["candidatesTokenCount"])
    assert (total["cached"], total["thinking"]) == (
        sums["cachedContentTokenCount"],
        sums["thoughtsTokenCount"],
    )
    # 0.24.0 writes down the name that was asked for, and nobody knows what `auto` costs.
    assert report["unpriced_models"] == (["auto"] if release == "0.24.0" else [])
    assert report["troubles"] == []
    # The folder of a session of 0.24.0 is a hash: which project that was, nobody knows.
    project = "unknown" if release == "0.24.0" else str(world.cwd)
    rows = usage(world, "--by", "session,project")["rows"]
    assert [(row["session"], row["project"], row["errands"]) for row in rows] == [
        (first.session_id, project, len(generated))
    ]
    ledger = next(world.places.errands.iterdir())
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.parent.stat().st_mode) == 0o700
    assert KEY not in ledger.read_text() and "pears" not in ledger.read_text()


def test_without_the_gateway(make_world: Any) -> None:
    """What nobody saw is not made up: the report has what the session files hold, and says what is missing."""
    world = make_world("0.61.0")
    with FakeGoogle(searching(), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo", gateway="off")
        assert geminids.ask_sync("look for pears", options).outcome == "success"
    report = usage(world)
    main = [one for one in google.asked if one.usage and one.request.method == "stream"]
    assert (report["total"]["requests"], report["total"]["errands"]) == (len(main), 0)
    assert len(main) < len(counted(google))
    assert "missing for all others" in report["not_counted"]
    assert not world.places.errands.exists()


@pytest.mark.deep
def test_by_telemetry(make_world: Any) -> None:
    """Where the CLI writes its requests down for us, those are known without the gateway too."""
    world = make_world("0.61.0")
    with FakeGoogle(searching(), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo", gateway="off", telemetry=True)
        assert geminids.ask_sync("look for pears", options).outcome == "success"
    assert each(stored(world)) == counted(google)


def test_no_real_model(make_world: Any) -> None:
    """A run with `offline` leaves a session file like any other, and costs nothing; the same session, resumed, does."""
    world = make_world("0.61.0")
    first = world.ask("hello", model="auto", offline=True)
    assert first.outcome == "success" and usage(world)["total"]["requests"] == 0
    with FakeGoogle(searching(), with_key=KEY) as google:
        again = through(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("look for pears", again).outcome == "success"
    assert each(stored(world)) == counted(google)


def test_turns_of_a_chat(make_world: Any) -> None:
    """On the warm lane each turn writes down its own, with the session of the chat."""
    world = make_world("0.61.0")

    async def talk(google: FakeGoogle) -> str:
        options = through(world, google, model="auto", approval="yolo")
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            for prompt in ("look for pears", "and again"):
                assert (await chat.ask(prompt)).outcome == "success"
            return str(chat.session_id)

    with FakeGoogle(searching(), with_key=KEY) as google:
        session = anyio.run(talk, google)
    assert each(stored(world)) == counted(google)
    errands = [one for one in stored(world) if one.errands]
    assert [(one.session, one.project) for one in errands] == [(session, str(world.cwd))]
    assert len({request.id.rpartition("-")[0] for request in errands[0].requests}) == 2


def test_nowhere_to_write(make_world: Any) -> None:
    """A ledger that cannot be written costs one notice, and not the run."""
    world = make_world("0.61.0")
    world.places.errands.write_text("a file where the folder should be")
    with FakeGoogle(searching(), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo")
        events: list[Any] = list(geminids.stream_sync("look for pears", options))
    assert events[-1].outcome == "success"
    notices = [one for one in events if isinstance(one, geminids.Notice) and one.code == "errands"]
    assert len(notices) == 1 and "usage" in notices[0].message


@pytest.mark.deep
def test_a_subagent(make_world: Any, release: str) -> None:
    """Its requests are counted once, for the conversation that called it, beside the errands."""
    world = make_world(release)
    report = {"SummaryOfFindings": "x", "ExplorationTrace": ["x"], "RelevantLocations": []}
    done = Call("complete_task", {"response": "x", "result": {"response": "x"}, "report": report})
    agent = Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})
    if release == "0.24.0":
        agent = Call("delegate_to_agent", {"agent_name": "codebase_investigator", "objective": "Look."})

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        usage = tokens(len(google.asked))
        if "complete_task" in request.tools:
            look = Call("glob", {"pattern": "*"})
            return Reply(calls=[done if request.turn_results else look], usage=usage)
        return Reply(text="done", usage=usage) if request.turn_results else Reply(calls=[agent], usage=usage)

    with FakeGoogle(script, with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo")
        result = geminids.ask_sync("look", options)
    assert result.outcome == "success"
    assert len(counted(google)) >= 4
    # 0.24.0 writes nothing of a subagent into any file: we do.
    assert each(stored(world)) == counted(google)
    assert {one.session for one in stored(world) if one.requests} == {result.session_id}
