"""`geminids usage` after runs of the real CLI: every answered request counts exactly once."""

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
from gateway_runs import KEY, options_for
from geminids.gateway import Call, Reply, ReplyUsage, Request
from geminids.gateway.request_log import LoggedRequest, read_request_log
from geminids.sessions import fork
from geminids.sessions.usage import StoredUsage, stored_usage, with_request_log
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real

# The oldest supported release and the newest.
RELEASES = ["0.61.0", pytest.param("0.54.4", marks=pytest.mark.deep)]
# A public address that needs no name lookup. The API fetches the page; the CLI does not connect to
# it.
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
    """A scripted model that reports a different number of tokens for each request."""

    def __init__(self, answer: Any) -> None:
        """`answer(request, number, usage)` returns the reply to a request of the conversation."""
        self._answer = answer
        self._requests = 0

    def __call__(self, request: Request) -> Reply | Fault | None:
        if request.method not in ("stream", "generate"):
            return None
        self._requests += 1
        number = self._requests
        usage = ReplyUsage(input=1000 + number, output=10 * number, cached=100 + number, thinking=7 * number)
        if request.method == "stream":
            answer = self._answer(request, number, usage)
            assert answer is None or isinstance(answer, Reply | Fault)
            return answer
        text = "found"
        for word, answer in (
            (b"complexity_score", ROUTE),
            (b"unproductive_state", NO_LOOP),
            (b"state_snapshot", SUMMARY),
        ):
            text = answer if word in request.raw else text
        return Reply(text=text, usage=usage, method="any")


def search_and_fetch(request: Request, number: int, usage: ReplyUsage) -> Reply:
    """Reply with a web search and a web fetch, then with an answer."""
    if not request.turn_results:
        search = Call("google_web_search", {"query": f"pears {number}"})
        fetch = Call("web_fetch", {"prompt": f"read {PAGE}"})
        return Reply(calls=[search, fetch], usage=usage)
    return Reply(text="done", usage=usage)


def served_tokens(google: FakeGoogle, methods: tuple[str, ...] = ("stream", "generate")) -> Counter[Counts]:
    """Count the requests by their input, cached, output and thinking tokens, as the server
    reported."""
    names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    return Counter(
        tuple(asked.usage.get(name, 0) for name in names)  # type: ignore[misc]
        for asked in google.asked
        if asked.usage and asked.request.method in methods
    )


def usage_in_files(world: Any) -> list[StoredUsage]:
    return stored_usage(home="user", environ={"HOME": str(world.home)}, places=world.places)


def count_tokens(usages: list[StoredUsage]) -> Counter[Counts]:
    counts = [request.tokens for usage in usages for request in usage.requests if usage.are_tokens_known]
    return Counter((tokens.input, tokens.cached, tokens.output, tokens.thinking) for tokens in counts)


def count_all_tokens(world: Any) -> Counter[Counts]:
    return count_tokens(with_request_log(usage_in_files(world), world.places))


def read_log(world: Any) -> list[LoggedRequest]:
    return list(read_request_log(world.places))


def run_usage_command(world: Any, *flags: str) -> Any:
    """Run `geminids usage --json` as a user does, and return its report."""
    completed = subprocess.run(
        [sys.executable, "-m", "geminids", "usage", "--json", *flags],
        env={**os.environ, "HOME": str(world.home), "TZ": "UTC"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(completed.stdout)


def test_router_search_and_fetch(make_world: Any, release: str) -> None:
    """Each request counts once: the router of `auto`, web tools, and a session that was resumed and
    then forked."""
    world = make_world(release)
    with FakeGoogle(Model(search_and_fetch), with_key=KEY) as google:
        options = options_for(world, google, model="auto", approval="yolo")
        first = geminids.ask_sync("look for pears", options)
        assert first.outcome == "success" and first.session_id is not None
        again = options_for(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("and again", again).outcome == "success"
    fork(first.session_id, world.cwd, home="user", environ={"HOME": str(world.home)}, places=world.places)
    assert count_tokens(usage_in_files(world)) == served_tokens(google, ("stream",)), (
        "session files have only the requests of the conversation"
    )
    assert count_all_tokens(world) == served_tokens(google)
    report, sums = run_usage_command(world), google.counted()
    # Both runs send one request each for the router, the search and the fetch.
    total = report["total"]
    assert (total["requests"], total["other_requests"]) == (served_tokens(google).total(), 6)
    assert (total["input"], total["output"]) == (sums["promptTokenCount"], sums["candidatesTokenCount"])
    assert (total["cached"], total["thinking"]) == (
        sums["cachedContentTokenCount"],
        sums["thoughtsTokenCount"],
    )
    assert (report["basis"], report["unpriced_models"], report["troubles"]) == ("exact", [], [])
    rows = run_usage_command(world, "--by", "session,project")["rows"]
    assert [(row["session"], row["project"], row["other_requests"]) for row in rows] == [
        (first.session_id, str(world.cwd), 6)
    ]
    log = world.places.request_log
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert KEY not in log.read_text() and "pears" not in log.read_text()


def test_loop_check(make_world: Any, release: str) -> None:
    """The request that the CLI sends to check for loops after the 30th turn is counted, although no
    session file has it."""
    world = make_world(release)

    def keep_working(request: Request, number: int, usage: ReplyUsage) -> Reply:
        glob = Call("glob", {"pattern": f"*{number}"})
        return Reply(calls=[glob], usage=usage) if number < 33 else Reply(text="done", usage=usage)

    with FakeGoogle(Model(keep_working), with_key=KEY) as google:
        assert geminids.ask_sync("work", options_for(world, google, approval="yolo")).outcome == "success"
    checks = [asked for asked in google.asked if b"unproductive_state" in asked.body]
    assert len(checks) == 1 and count_tokens(usage_in_files(world)) == served_tokens(google, ("stream",))
    assert count_all_tokens(world) == served_tokens(google)


@pytest.mark.deep
def test_compression(make_world: Any, release: str) -> None:
    """Requests that summarize a long conversation are counted, although no session file has
    them."""
    world = make_world(release)
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": {"compressionThreshold": 0.000001}}')
    (world.cwd / "long.txt").write_text("word " * 4000)

    def reply_at_length(request: Request, number: int, usage: ReplyUsage) -> Reply:
        return Reply(text=" ".join(f"word{at}" for at in range(2000)), usage=usage)

    with FakeGoogle(Model(reply_at_length), with_key=KEY) as google:
        first = geminids.ask_sync("hello @long.txt", options_for(world, google))
        again = geminids.ask_sync("and now?", options_for(world, google, resume=first.session_id))
    assert first.ok and again.ok
    assert served_tokens(google, ("generate",)).total() == 2 and count_tokens(
        usage_in_files(world)
    ) == served_tokens(google, ("stream",))
    assert count_all_tokens(world) == served_tokens(google)


def run_subagent(request: Request, number: int, usage: ReplyUsage) -> Reply:
    """Call a subagent that looks for files. The subagent's first answer is empty, so the CLI sends
    the request again."""
    report = {"SummaryOfFindings": "x", "ExplorationTrace": ["x"], "RelevantLocations": []}
    done = Call("complete_task", {"response": "x", "result": {"response": "x"}, "report": report})
    if "complete_task" in request.tools:
        if number == 2:
            return Reply(text="", usage=usage)
        return Reply(calls=[done if request.turn_results else Call("glob", {"pattern": "*"})], usage=usage)
    invoke = Call("invoke_agent", {"agent_name": "generalist", "prompt": "Look."})
    return Reply(text="done", usage=usage) if request.turn_results else Reply(calls=[invoke], usage=usage)


def repeat_one_call(request: Request, number: int, usage: ReplyUsage) -> Reply:
    """Reply with the same call each time. The CLI discards the fifth answer and warns the model of
    a loop; then reply with text."""
    if b"Potential loop detected" in request.raw:
        return Reply(text="done", usage=usage)
    return Reply(calls=[Call("glob", {"pattern": "*"})], usage=usage)


def empty_first(request: Request, number: int, usage: ReplyUsage) -> Reply:
    """Reply first with an empty answer, which the CLI discards, and then with text."""
    return Reply(text="" if number == 1 else "done", usage=usage)


@pytest.mark.parametrize(
    ("answer", "discarded"),
    [(repeat_one_call, 5), (empty_first, 1), (run_subagent, 2)],
    ids=["loop", "empty", "subagent"],
)
def test_discarded_answers(make_world: Any, release: str, answer: Any, discarded: int) -> None:
    """The tokens of an answer that the CLI discarded are counted once, although no session file has
    them."""
    world = make_world(release)
    model = "gemini-2.5-flash"
    with FakeGoogle(Model(answer), with_key=KEY) as google:
        result = geminids.ask_sync("look", options_for(world, google, approval="yolo", model=model))
    assert result.outcome == "success"
    files, conversation = count_tokens(usage_in_files(world)), served_tokens(google, ("stream",))
    (missing,) = (conversation - files).elements()
    assert files - conversation == Counter()
    assert missing[0] == 1000 + discarded
    assert [entry.request for entry in read_log(world) if entry.discarded] == list(result.discarded)
    assert len(result.discarded) == 1
    assert count_all_tokens(world) == served_tokens(google)
    total = run_usage_command(world)["total"]
    assert (total["discarded_requests"], total["discarded_tokens"]) == (
        1,
        missing[0] + missing[2] + missing[3],
    )
    usages = with_request_log(usage_in_files(world), world.places)
    assert {usage.session for usage in usages} == {result.session_id}


def test_a_stream_that_was_cut_off(make_world: Any) -> None:
    """A request whose answer broke off before its token counts is listed with unknown tokens."""
    world = make_world("0.61.0")

    def cut(request: Request, number: int, usage: ReplyUsage) -> Reply | Fault:
        if number == 1:
            return Fault("reset", Reply(text=["a", "b", "c"], usage=usage), after=1)
        return Reply(text="done", usage=usage)

    with FakeGoogle(Model(cut), with_key=KEY) as google:
        assert geminids.ask_sync("hello", options_for(world, google)).outcome == "success"
    assert count_all_tokens(world) == served_tokens(google)
    report = run_usage_command(world)
    assert (report["total"]["requests"], report["total"]["unknown_requests"]) == (2, 1)
    assert report["basis"] == "estimate"


@pytest.mark.deep
def test_failed_requests_are_not_logged(make_world: Any) -> None:
    """A request that the API answers with an error costs nothing and is not logged."""
    world = make_world("0.61.0")

    def refused(request: Request, number: int, usage: ReplyUsage) -> Reply:
        return Reply(status=500, error="no") if number == 1 else Reply(text="done", usage=usage)

    with FakeGoogle(Model(refused), with_key=KEY) as google:
        assert geminids.ask_sync("hello", options_for(world, google)).outcome == "success"
    assert count_all_tokens(world) == served_tokens(google) and not world.places.request_log.exists()
    assert run_usage_command(world)["total"]["requests"] == 1


def test_a_run_without_the_gateway_logs_nothing(make_world: Any) -> None:
    """A run without the gateway writes no request log. The report then has only the requests in
    session files, and says which requests are missing."""
    world = make_world("0.61.0")
    with FakeGoogle(Model(search_and_fetch), with_key=KEY) as google:
        options = options_for(world, google, model="auto", approval="yolo", gateway="off")
        assert geminids.ask_sync("look for pears", options).outcome == "success"
    report, conversation = run_usage_command(world), served_tokens(google, ("stream",))
    assert (report["total"]["requests"], report["total"]["other_requests"]) == (conversation.total(), 0)
    assert conversation.total() < served_tokens(google).total()
    assert "for all other runs, they are missing" in report["not_counted"]
    assert not world.places.request_log.exists()


def test_an_offline_run_costs_nothing(make_world: Any) -> None:
    """An `offline` run is not counted. When its session is resumed with a real model, only the new
    requests are counted."""
    world = make_world("0.61.0")
    first = world.ask("hello", model="auto", offline=True)
    assert first.outcome == "success" and run_usage_command(world)["total"]["requests"] == 0
    with FakeGoogle(Model(search_and_fetch), with_key=KEY) as google:
        again = options_for(world, google, model="auto", approval="yolo", resume=first.session_id)
        assert geminids.ask_sync("look for pears", again).outcome == "success"
    assert count_all_tokens(world) == served_tokens(google)


@pytest.mark.parametrize("how", ["run", "chat"])
def test_a_scripted_api_costs_nothing(make_world: Any, how: str) -> None:
    """A run against the gateway of a test, or of `geminids gateway`, costs no dollars: neither its
    result, nor its budget, nor the report. With `--scripted` the report has each request once."""
    world = make_world("0.61.0")
    budget = geminids.Budget(dollars=1.0)
    world.gateway.reply(calls=[("glob", {"pattern": "*"})])
    world.gateway.reply(text="done")

    async def ask() -> geminids.Result:
        options = world.options(model="auto")
        if how == "run":
            return await geminids.ask("hello", options, budget=budget)
        async with geminids.Pool(options, budget=budget) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    result = anyio.run(ask)
    assert result.ok and result.cost is not None, result.failure
    assert result.cost.usd == 0 and (result.cost.basis, result.cost.auth_mode) == ("exact", "none")
    assert budget.spent.dollars == 0 and budget.spent.requests == 3
    assert run_usage_command(world)["total"]["requests"] == 0
    report = run_usage_command(world, "--scripted", "--by", "session")
    total = report["total"]
    assert (total["requests"], total["scripted_requests"], total["other_requests"]) == (3, 3, 1)
    assert (total["total"], total["scripted_tokens"]) == (budget.spent.tokens, budget.spent.tokens)
    assert (total["usd"], report["unpriced_models"]) == (0, [])
    assert [row["session"] for row in report["rows"] if row["scripted_requests"] == 3] == [result.session_id]


def test_a_plain_cli_with_a_scripted_api_costs_nothing(make_world: Any) -> None:
    """The gateway of a script logs what a plain `gemini` asks it, so that its session is not counted.
    Requests of a real API with equal tokens are counted."""
    world = make_world("0.61.0")
    usage = ReplyUsage(input=1000, output=10)
    with FakeGoogle([Reply(text="paid", usage=usage)], with_key=KEY) as google:
        paid = geminids.ask_sync("hello", options_for(world, google))
    assert paid.cost is not None and paid.cost.usd
    world.gateway.reply(text="free", usage=usage)
    done = plain_gemini(world, "--prompt=hello")
    assert done.returncode == 0, done.stderr
    rows = run_usage_command(world, "--by", "session")["rows"]
    assert [(row["session"], row["requests"]) for row in rows] == [(paid.session_id, 1)]
    rows = run_usage_command(world, "--scripted", "--by", "session")["rows"]
    assert sorted((row["requests"], row["scripted_requests"], row["usd"] == 0) for row in rows) == [
        (1, 0, False),
        (1, 1, True),
    ]


def test_each_turn_of_a_chat_logs_its_requests(make_world: Any) -> None:
    """In a warm chat each turn logs its own requests under its own run id and the chat's
    session."""
    world = make_world("0.61.0")

    async def ask_twice(google: FakeGoogle) -> str:
        options = options_for(world, google, model="auto", approval="yolo")
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            for prompt in ("look for pears", "and again"):
                assert (await chat.ask(prompt)).outcome == "success"
            return str(chat.session_id)

    with FakeGoogle(Model(search_and_fetch), with_key=KEY) as google:
        session = anyio.run(ask_twice, google)
    assert count_all_tokens(world) == served_tokens(google)
    logged = read_log(world)
    assert {(request.session, request.project) for request in logged} == {(session, str(world.cwd))}
    assert len({request.run for request in logged}) == 2


def test_a_log_that_cannot_be_written(make_world: Any) -> None:
    """If the request log cannot be written, the run succeeds and emits one notice."""
    world = make_world("0.61.0")
    world.places.request_log.parent.write_text("a file in place of the folder")
    with FakeGoogle(Model(search_and_fetch), with_key=KEY) as google:
        options = options_for(world, google, model="auto", approval="yolo")
        events: list[Any] = list(geminids.stream_sync("look for pears", options))
    assert events[-1].outcome == "success"
    notices = [one for one in events if isinstance(one, geminids.Notice) and one.code == "request_log"]
    assert len(notices) == 1 and "geminids usage" in notices[0].message
