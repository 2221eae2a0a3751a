"""`geminids usage` after runs of the real CLI: every request that the API answered counts, and counts once."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault
from geminids.gateway import Call, Reply, Request
from geminids.gateway import Usage as Told
from geminids.gateway.request_log import LoggedRequest, read_request_log
from geminids.sessions import fork
from geminids.sessions.usage import StoredUsage, stored_usage, with_request_log
from through_gateway import KEY, through

pytestmark = pytest.mark.real

# The oldest supported release and the newest.
RELEASES = ["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)]
# An address that is neither private nor looked up; the CLI itself does not connect to it.
PAGE = "https://93.184.216.34/"
ROUTE = json.dumps({"complexity_reasoning": "easy", "complexity_score": 5})
NO_LOOP = json.dumps({"unproductive_state_analysis": "no", "unproductive_state_confidence": 0.1})
SUMMARY = "<state_snapshot>a summary</state_snapshot>"
Counts = tuple[int, int, int, int]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


class Model:
    """Answers each request with its own number of tokens, so that two requests never look alike."""

    def __init__(self, answer: Any) -> None:
        """`answer` is asked for the replies of the conversation, with the number of the request."""
        self._answer = answer
        self._requests = 0

    def __call__(self, request: Request) -> Reply | Fault | None:
        if request.method not in ("stream", "generate"):
            return None
        self._requests += 1
        number = self._requests
        usage = Told(input=1000 + number, output=10 * number, cached=100 + number, thinking=7 * number)
        if request.method == "stream":
            answer = self._answer(request, number, usage)
            assert answer is None or isinstance(answer, Reply | Fault)
            return answer
        text = "found"
        for word, said in (
            (b"complexity_score", ROUTE),
            (b"unproductive_state", NO_LOOP),
            (b"state_snapshot", SUMMARY),
        ):
            text = said if word in request.raw else text
        return Reply(text=text, usage=usage, method="any")


def searching(request: Request, number: int, usage: Told) -> Reply:
    """A web search and a web fetch, then an answer."""
    if not request.turn_results:
        search = Call("google_web_search", {"query": f"pears {number}"})
        fetch = Call("web_fetch", {"prompt": f"read {PAGE}"})
        return Reply(calls=[search, fetch], usage=usage)
    return Reply(text="done", usage=usage)


def served(google: FakeGoogle, methods: tuple[str, ...] = ("stream", "generate")) -> Counter[Counts]:
    """Input, cached, output and thinking of each request, as the server reported them."""
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    return Counter(
        tuple(asked.usage.get(name, 0) for name in names)  # type: ignore[misc]
        for asked in google.asked
        if asked.usage and asked.request.method in methods
    )


def in_files(world: Any) -> list[StoredUsage]:
    return stored_usage(home="user", environ={"HOME": str(world.home)}, places=world.places)


def counted(usages: list[StoredUsage]) -> Counter[Counts]:
    tokens = [request.tokens for one in usages for request in one.requests if one.are_tokens_known]
    return Counter((one.input, one.cached, one.output, one.thinking) for one in tokens)


def all_counted(world: Any) -> Counter[Counts]:
    return counted(with_request_log(in_files(world), world.places))


def logged(world: Any) -> list[LoggedRequest]:
    return list(read_request_log(world.places))


def usage(world: Any, *words: str) -> Any:
    """What a user sees."""
    ran = subprocess.run(
        [sys.executable, "-m", "geminids", "usage", "--json", *words],
        env={**os.environ, "HOME": str(world.home), "TZ": "UTC"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(ran.stdout)


def test_router_search_and_fetch(make_world: Any, release: str) -> None:
    """With `auto`, web tools, a resumed and a forked session: each request that the API counted, once."""
    world = make_world(release)
    with FakeGoogle(Model(searching), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo")
        first = geminids.ask_sync("look for pears", options)
        assert first.outcome == "success" and first.session_id is not None
        again = through(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("and again", again).outcome == "success"
    fork(first.session_id, world.cwd, home="user", environ={"HOME": str(world.home)}, places=world.places)
    assert counted(in_files(world)) == served(google, ("stream",)), (
        "session files hold the conversation alone"
    )
    assert all_counted(world) == served(google)
    report, sums = usage(world), google.counted()
    # Twice a router, a search and a fetch.
    total = report["total"]
    assert (total["requests"], total["other_requests"]) == (served(google).total(), 6)
    assert (total["input"], total["output"]) == (sums["promptTokenCount"], sums["candidatesTokenCount"])
    assert (total["cached"], total["thinking"]) == (
        sums["cachedContentTokenCount"],
        sums["thoughtsTokenCount"],
    )
    assert (report["basis"], report["unpriced_models"], report["troubles"]) == ("exact", [], [])
    rows = usage(world, "--by", "session,project")["rows"]
    assert [(row["session"], row["project"], row["other_requests"]) for row in rows] == [
        (first.session_id, str(world.cwd), 6)
    ]
    log = world.places.request_log
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert KEY not in log.read_text() and "pears" not in log.read_text()


def test_loop_check(make_world: Any, release: str) -> None:
    """From the 30th turn on the CLI asks a model whether it is in a loop: no session file holds that request."""
    world = make_world(release)

    def working(request: Request, number: int, usage: Told) -> Reply:
        glob = Call("glob", {"pattern": f"*{number}"})
        return Reply(calls=[glob], usage=usage) if number < 33 else Reply(text="done", usage=usage)

    with FakeGoogle(Model(working), with_key=KEY) as google:
        assert geminids.ask_sync("work", through(world, google, approval="yolo")).outcome == "success"
    checks = [asked for asked in google.asked if b"unproductive_state" in asked.body]
    assert len(checks) == 1 and counted(in_files(world)) == served(google, ("stream",))
    assert all_counted(world) == served(google)


@pytest.mark.deep
def test_compression(make_world: Any, release: str) -> None:
    """The requests that summarize a long conversation are in no session file."""
    world = make_world(release)
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": {"compressionThreshold": 0.000001}}')
    (world.cwd / "long.txt").write_text("word " * 4000)

    def talking(request: Request, number: int, usage: Told) -> Reply:
        return Reply(text=" ".join(f"word{at}" for at in range(2000)), usage=usage)

    with FakeGoogle(Model(talking), with_key=KEY) as google:
        first = geminids.ask_sync("hello @long.txt", through(world, google))
        again = geminids.ask_sync("and now?", through(world, google, resume=first.session_id))
    assert first.ok and again.ok
    assert served(google, ("generate",)).total() == 2 and counted(in_files(world)) == served(
        google, ("stream",)
    )
    assert all_counted(world) == served(google)


def agent(request: Request, number: int, usage: Told) -> Reply:
    """A subagent that looks for files; its first answer is empty, and the CLI asks again."""
    report = {"SummaryOfFindings": "x", "ExplorationTrace": ["x"], "RelevantLocations": []}
    done = Call("complete_task", {"response": "x", "result": {"response": "x"}, "report": report})
    if "complete_task" in request.tools:
        if number == 2:
            return Reply(text="", usage=usage)
        return Reply(calls=[done if request.turn_results else Call("glob", {"pattern": "*"})], usage=usage)
    invoke = Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})
    return Reply(text="done", usage=usage) if request.turn_results else Reply(calls=[invoke], usage=usage)


def in_a_loop(request: Request, number: int, usage: Told) -> Reply:
    """The same call again and again: the CLI throws the fifth answer away and asks the model to step back."""
    if b"Potential loop detected" in request.raw:
        return Reply(text="done", usage=usage)
    return Reply(calls=[Call("glob", {"pattern": "*"})], usage=usage)


def empty_first(request: Request, number: int, usage: Told) -> Reply:
    """An empty answer, which the CLI throws away and asks again for."""
    return Reply(text="" if number == 1 else "done", usage=usage)


@pytest.mark.parametrize(
    ("answer", "discarded"), [(in_a_loop, 5), (empty_first, 1), (agent, 2)], ids=["loop", "empty", "subagent"]
)
def test_discarded_answers(make_world: Any, release: str, answer: Any, discarded: int) -> None:
    """No session file holds an answer that the CLI threw away: the log has it, and all requests count once."""
    world = make_world(release)
    model = "gemini-2.5-flash"
    with FakeGoogle(Model(answer), with_key=KEY) as google:
        result = geminids.ask_sync("look", through(world, google, approval="yolo", model=model))
    assert result.outcome == "success"
    files, conversation = counted(in_files(world)), served(google, ("stream",))
    (missing,) = (conversation - files).elements()
    assert files - conversation == Counter()
    assert missing[0] == 1000 + discarded
    assert [one.request for one in logged(world) if one.discarded] == list(result.discarded)
    assert len(result.discarded) == 1
    assert all_counted(world) == served(google)
    total = usage(world)["total"]
    assert (total["discarded_requests"], total["discarded_tokens"]) == (
        1,
        missing[0] + missing[2] + missing[3],
    )
    assert {one.session for one in with_request_log(in_files(world), world.places)} == {result.session_id}


def test_a_stream_that_was_cut_off(make_world: Any) -> None:
    """An answer that ended before its tokens is listed as a request with unknown tokens."""
    world = make_world("0.61.0")

    def cut(request: Request, number: int, usage: Told) -> Reply | Fault:
        if number == 1:
            return Fault("reset", Reply(text=["a", "b", "c"], usage=usage), after=1)
        return Reply(text="done", usage=usage)

    with FakeGoogle(Model(cut), with_key=KEY) as google:
        assert geminids.ask_sync("hello", through(world, google)).outcome == "success"
    assert all_counted(world) == served(google)
    report = usage(world)
    assert (report["total"]["requests"], report["total"]["unknown_requests"]) == (2, 1)
    assert report["basis"] == "estimate"


@pytest.mark.deep
def test_failed_requests(make_world: Any) -> None:
    """A request that the API refused costs nothing and is in no log."""
    world = make_world("0.61.0")

    def refused(request: Request, number: int, usage: Told) -> Reply:
        return Reply(status=500, error="no") if number == 1 else Reply(text="done", usage=usage)

    with FakeGoogle(Model(refused), with_key=KEY) as google:
        assert geminids.ask_sync("hello", through(world, google)).outcome == "success"
    assert all_counted(world) == served(google) and not world.places.request_log.exists()
    assert usage(world)["total"]["requests"] == 1


def test_without_the_gateway(make_world: Any) -> None:
    """A run without the gateway logs nothing: the report has what session files hold, and says what is missing."""
    world = make_world("0.61.0")
    with FakeGoogle(Model(searching), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo", gateway="off")
        assert geminids.ask_sync("look for pears", options).outcome == "success"
    report, conversation = usage(world), served(google, ("stream",))
    assert (report["total"]["requests"], report["total"]["other_requests"]) == (conversation.total(), 0)
    assert conversation.total() < served(google).total()
    assert "missing for all other runs" in report["not_counted"]
    assert not world.places.request_log.exists()


def test_no_real_model(make_world: Any) -> None:
    """A run with `offline` writes a session file and costs nothing; the same session, resumed, does cost."""
    world = make_world("0.61.0")
    first = world.ask("hello", model="auto", offline=True)
    assert first.outcome == "success" and usage(world)["total"]["requests"] == 0
    with FakeGoogle(Model(searching), with_key=KEY) as google:
        again = through(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("look for pears", again).outcome == "success"
    assert all_counted(world) == served(google)


def test_turns_of_a_chat(make_world: Any) -> None:
    """In a warm chat each turn logs its own requests, with the session of the chat."""
    world = make_world("0.61.0")

    async def talk(google: FakeGoogle) -> str:
        options = through(world, google, model="auto", approval="yolo")
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            for prompt in ("look for pears", "and again"):
                assert (await chat.ask(prompt)).outcome == "success"
            return str(chat.session_id)

    with FakeGoogle(Model(searching), with_key=KEY) as google:
        session = anyio.run(talk, google)
    assert all_counted(world) == served(google)
    assert {(one.session, one.project) for one in logged(world)} == {(session, str(world.cwd))}
    assert len({one.run for one in logged(world)}) == 2


def test_nowhere_to_write(make_world: Any) -> None:
    """A log that cannot be written costs one notice, and not the run."""
    world = make_world("0.61.0")
    world.places.request_log.parent.write_text("a file in place of the folder")
    with FakeGoogle(Model(searching), with_key=KEY) as google:
        options = through(world, google, model="auto", approval="yolo")
        events: list[Any] = list(geminids.stream_sync("look for pears", options))
    assert events[-1].outcome == "success"
    notices = [one for one in events if isinstance(one, geminids.Notice) and one.code == "request_log"]
    assert len(notices) == 1 and "geminids usage" in notices[0].message
