"""Failures around the gateway: each run ends with a clear failure or with exact counts, never
hangs, and no request bypasses the gateway."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import geminids
from collect_events import check_events, select_events
from fake_google import FakeGoogle, ReceivedRequest, certificate
from fake_proxy import FakeProxy
from geminids import Finished, TokensUsed, ToolFinished
from geminids.events.model import decode_event
from geminids.gateway import Call, Reply, ReplyUsage, Request
from geminids.gateway import registry as gateway_host
from host_program import Task, run_host
from sign_ins import (
    KEY,
    MODEL,
    SIGN_INS,
    SignIn,
    options_for_server,
    paid_requests,
    usage_of_api,
    usage_of_events,
)

pytestmark = pytest.mark.real
deep = pytest.mark.deep


@pytest.fixture
def world(make_world: Any) -> Any:
    return make_world("0.61.0")


def make_usage(step: int, more: int = 0) -> ReplyUsage:
    return ReplyUsage(input=1_000 + 10 * more + step, output=10 + step, cached=0, thinking=0)


def assert_clear(events: list[Any], asked: list[ReceivedRequest], *, priced: bool = True) -> Finished:
    """Check that the run ended, reported each request that the API received, and gave a reason if
    it failed. With `priced=False`, the prices may be missing, because the price list could not be
    read."""
    finished = check_events(events)
    used = select_events(events, TokensUsed)
    assert len(used) == len(asked)
    rows = [row for row, one in zip(usage_of_events(events), used, strict=True) if one.input is not None]
    expected = usage_of_api(one for one in asked if one.usage)
    if not priced and expected and rows[0][-1] is None:
        rows, expected = [row[:-1] for row in rows], [row[:-1] for row in expected]
    assert rows == expected
    if finished.outcome != "success":
        assert finished.failure is not None
        assert finished.failure.message
    return finished


# The gateway ends in the middle of a run.


def close_listener(server: Any) -> None:
    """Close the gateway's listening socket, as a program does that closes descriptors it did not
    open."""
    server._socket.close()


def raise_in_thread(server: Any) -> None:
    """Raise an exception in the gateway's thread."""

    def fail() -> None:
        raise SystemExit("made up")  # asyncio ends the loop for this exception

    server._loop.call_soon_threadsafe(fail)


@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=deep)])
@pytest.mark.parametrize("end", [close_listener, raise_in_thread])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_gateway_ends_in_the_middle(world: Any, end: Callable[[Any], None], transport: str) -> None:
    """If the gateway's listener is closed or its thread raises while a tool works, the run fails
    soon and names the gateway. No further request reaches the API, and the next run has a new
    gateway."""
    command = "touch started; until test -e go; do sleep 0.02; done"

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        if "again" in request.last_user_text:
            return Reply(text="fine", usage=make_usage(5))
        if not request.turn_results:
            return Reply(calls=[Call("run_shell_command", {"command": command})], usage=make_usage(0))
        return Reply(text="done", usage=make_usage(1))

    async def consume(stream: Any) -> list[Any]:
        events: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interfere)
            with anyio.fail_after(60):
                events.extend([event async for event in stream])
        return events

    async def interfere() -> None:
        while not (world.cwd / "started").exists():
            await anyio.sleep(0.02)
        assert gateway_host._host is not None
        server = gateway_host._host._server
        end(server)
        with anyio.fail_after(10):
            while not server.ended:
                await anyio.sleep(0.02)
        (world.cwd / "go").touch()

    async def main(google: Any) -> tuple[list[Any], list[ReceivedRequest], geminids.Result]:
        options = options_for_server(world, google, approval="yolo")
        if transport == "headless":
            async with geminids.open_run("hello", options) as run:
                events = await consume(run)
            return events, paid_requests(google), await geminids.ask("again", options)
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            events = await consume(chat.send("hello"))
            return events, paid_requests(google), await chat.ask("again")

    with SIGN_INS["key"].serve(script, world.root) as google:
        events, asked, again = anyio.run(main, google)
        assert {one.key for one in google.asked} == {KEY}
    finished = assert_clear(events, asked)
    assert len(asked) == 1
    assert finished.failure is not None
    assert (finished.outcome, finished.failure.kind) == ("failed", "network")
    assert "the gateway between the CLI and the API has ended" in finished.failure.message
    assert finished.failure.hint
    assert (again.outcome, again.answer) == ("success", "fine"), again.failure


# Missing descriptors or loopback.


def two_steps(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    if not request.turn_results:
        command = "env > env.txt"
        return Reply(calls=[Call("run_shell_command", {"command": command})], usage=make_usage(0))
    return Reply(text="done", usage=make_usage(1))


def take_descriptors(spare: int) -> str:
    """Return Python code for the host that leaves only `spare` free descriptors for the run. It
    imports the modules first. The CLI can use all 256, because it does not inherit the taken
    ones."""
    return f"""
import os, resource
import anyio._backends._asyncio, psutil
import geminids.gateway.server.accept, geminids.gateway.server.connection
import geminids.gateway.metering, geminids.gateway.forward.forward
import geminids.run.headless.attempt, geminids.warm.acp.process
import geminids
geminids.open_run, geminids.Pool
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    for descriptor in taken[-{spare}:]:
        os.close(descriptor)
"""


@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=deep)])
@pytest.mark.parametrize(
    "spare", [4, *(pytest.param(n, marks=deep) for n in (6, 9, 12, 13, 14, 15, 16, 17, 18, 24))]
)
def test_no_descriptors_are_left(world: Any, spare: int, transport: str) -> None:
    """With too few descriptors the run fails with "Too many open files", whether the listener, the
    CLI's pipes, or a connection lacks one. With enough, both requests are counted exactly."""
    with SIGN_INS["key"].serve(two_steps, world.root) as google:
        options = options_for_server(world, google, approval="yolo", max_attempts=2)
        report = run_host(
            Task(options=options, warm=transport == "warm", before=take_descriptors(spare)), timeout=100
        )
        asked = paid_requests(google)
        assert {one.key for one in google.asked} <= {KEY}
    (events,) = report.events
    assert events, report.stderr
    assert "Exception in thread" not in report.stderr
    finished = assert_clear(events, asked, priced=False)
    if finished.outcome == "success":
        assert len(asked) == 2
    else:
        assert "Too many open files" in str(finished.failure)


def without_loopback() -> list[str]:
    """Return a command prefix for a network namespace whose `lo` is down; skip the test if that is
    not allowed."""
    prefix = ["unshare", "--net", "--"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs the right to make a network namespace (root)")
    return prefix


@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=deep)])
def test_no_loopback(world: Any, transport: str) -> None:
    """Without loopback the run is refused with the reason and a hint. It does not start without the
    gateway."""
    prefix = without_loopback()
    with SIGN_INS["key"].serve(two_steps, world.root) as google:
        options = options_for_server(world, google)
        report = run_host(Task(options=options, warm=transport == "warm"), prefix=prefix, timeout=60)
        assert google.connections == 0
    (events,) = report.events
    assert events, report.stderr
    failure = events[-1].failure
    assert (events[-1].outcome, failure.kind) == ("failed", "network")
    assert "127.0.0.1" in failure.message
    assert failure.hint
    assert select_events(events, geminids.Started) == []


# A run inside a run.


def nested_script(world: Any, *flags: str) -> Callable[[Request], Reply | None]:
    """Script an outer agent that runs `geminids run inner` in a shell, and an inner agent that uses
    a tool and answers."""
    argv = [sys.executable, "-m", "geminids", "run", "inner", "--output=events", f"--model={MODEL}"]
    argv += [f"--cwd={world.root / 'inner'}", f"--gemini={world.version}", *flags]
    command = f"{shlex.join(argv)} > inner.jsonl 2> inner.err"

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        step = len(request.turn_results)
        if "inner" in request.last_user_text:
            if step == 0:
                return Reply(calls=[Call("glob", {"pattern": "*"})], usage=make_usage(0, 50))
            return Reply(text="inner done", usage=make_usage(1, 50))
        if step == 0:
            return Reply(calls=[Call("run_shell_command", {"command": command})], usage=make_usage(0))
        return Reply(text="outer done", usage=make_usage(1))

    return script


def is_inner(asked: ReceivedRequest) -> bool:
    return "inner" in asked.request.last_user_text


@pytest.mark.parametrize(
    "name", ["key", *(pytest.param(name, marks=deep) for name in SIGN_INS if name != "key")]
)
def test_a_run_inside_a_run(world: Any, name: str) -> None:
    """The API, the day's budget and both results agree on the number of requests. The outer run
    reports each inner request once, with the role `nested`, and does not count it as a turn."""
    sign_in: SignIn = SIGN_INS[name]
    (world.root / "inner").mkdir()
    with sign_in.serve(nested_script(world, "--day-requests=20"), world.root) as google:
        options = options_for_server(world, google, approval="yolo", day_requests=20)
        events: list[Any] = list(geminids.stream_sync("outer", options))
        asked = paid_requests(google)
        assert all(sign_in.holds_the_key(google, one) for one in asked)
    assert events[-1].outcome == "success", events[-1].failure
    inner = inner_events(world)
    assert inner, (world.cwd / "inner.err").read_text()
    assert (inner[-1].outcome, inner[-1].answer) == ("success", "inner done"), inner[-1].failure
    assert [is_inner(one) for one in asked] == [False, True, True, False]
    assert usage_of_events(events) == usage_of_api(asked)
    assert usage_of_events(inner) == usage_of_api(one for one in asked if is_inner(one))
    used = select_events(events, TokensUsed)
    assert [one.role for one in used] == ["main", "nested", "nested", "main"]
    assert [one.request for one in used] == [1, 2, 3, 4]
    assert [one.turn for one in used] == [1, 1, 1, 2]
    assert [one.role for one in select_events(inner, TokensUsed)] == ["main", "main"]
    assert (events[-1].usage.requests, inner[-1].usage.requests) == (4, 2)
    assert events[-1].cost.basis == inner[-1].cost.basis == "exact"
    assert events[-1].cost.list_price == sum(row[-1] for row in usage_of_api(asked))
    assert booked_today(world) == 4


def test_an_inner_run_stops_at_the_budget_of_the_outer(world: Any) -> None:
    """An inner run can use only what is left of the outer run's budget: its second request is not
    sent."""
    (world.root / "inner").mkdir()
    with SIGN_INS["key"].serve(nested_script(world), world.root) as google:
        events: list[Any] = list(
            geminids.stream_sync("outer", options_for_server(world, google, approval="yolo", max_requests=2))
        )
        asked = paid_requests(google)
    assert [is_inner(one) for one in asked] == [False, True]
    assert (events[-1].outcome, events[-1].usage.requests) == ("over_budget", 2)
    # The outer run ends its tools at once. The inner run is interrupted, or has already failed
    # because its request was refused, or cannot write its last event. It never reports success.
    assert {one.outcome for one in select_events(inner_events(world), Finished)} <= {"failed", "interrupted"}


@deep
def test_a_tool_of_a_warm_chat_has_no_key_for_an_inner_run(world: Any) -> None:
    """Tools of a warm chat receive no gateway token, because the process serves many chats. An
    inner run fails as `auth` and names the reason."""
    (world.root / "inner").mkdir()

    async def send_outer_prompt(google: Any) -> list[Any]:
        options = options_for_server(world, google, approval="yolo")
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("outer")]

    with SIGN_INS["key"].serve(nested_script(world), world.root) as google:
        events = anyio.run(send_outer_prompt, google)
        assert [is_inner(one) for one in paid_requests(google)] == [False, False]
    assert events[-1].outcome == "success", events[-1].failure
    failure = inner_events(world)[-1].failure
    assert (failure.kind, "warm chat" in failure.message) == ("auth", True)


def inner_events(world: Any) -> list[Any]:
    return [decode_event(line) for line in (world.cwd / "inner.jsonl").read_bytes().splitlines()]


def booked_today(world: Any) -> int:
    """Return the number of requests in the file of the day's budget."""
    (file,) = Path(world.places.root, "spent").glob("*.jsonl")
    return int(json.loads(file.read_text().splitlines()[-1])["sum"]["requests"])


# A proxy in the environment.


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with FakeProxy() as proxy:
        # The CLI sends its statistics to this host; the proxy leads it to a closed port.
        proxy.leads_to["play.googleapis.com:443"] = ("127.0.0.1", 1)
        yield proxy


@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=deep)])
def test_the_gateway_uses_the_proxy_and_the_cli_does_not(
    world: Any, proxy: FakeProxy, transport: str
) -> None:
    """The gateway reaches the API through the proxy, with the user's certificate. The CLI reaches
    the gateway without the proxy."""
    file = certificate(world.root, "api.test")
    with FakeGoogle(two_steps, tls=file, with_key=KEY) as google:
        proxy.leads_to["api.test:443"] = ("127.0.0.1", google.port)
        google.env = {  # type: ignore[attr-defined]
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": "https://api.test",
            "HTTPS_PROXY": proxy.url,
            "NODE_EXTRA_CA_CERTS": str(file),
        }
        options = options_for_server(world, google, approval="yolo")
        events = (
            list(geminids.stream_sync("hello", options)) if transport == "headless" else run_chat(options)
        )
        asked = paid_requests(google)
        assert {one.key for one in google.asked} == {KEY}
    finished = assert_clear(events, asked)
    assert (finished.outcome, len(asked)) == ("success", 2), finished.failure
    assert set(proxy.asked) - {"play.googleapis.com:443"} == {"api.test:443"}
    assert_only_the_gateway(world, "https://api.test")


def run_chat(options: geminids.Options) -> list[Any]:
    async def main() -> list[Any]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    return anyio.run(main)


@pytest.mark.parametrize("name", ["key", *(pytest.param(name, marks=deep) for name in ("vertex_key", "adc"))])
def test_a_dead_proxy_does_not_matter_on_loopback(world: Any, name: str) -> None:
    """With an API on this machine, a dead proxy does no harm: neither the CLI nor the gateway uses
    it."""
    sign_in = SIGN_INS[name]
    with sign_in.serve(two_steps, world.root) as google:
        dead = {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
        events = list(
            geminids.stream_sync("hello", options_for_server(world, google, approval="yolo", env=dead))
        )
        finished = assert_clear(events, paid_requests(google))
    assert finished.outcome == "success", finished.failure


def assert_only_the_gateway(world: Any, upstream: str) -> None:
    """Check that a tool's environment has the gateway's address, and neither the key nor the API's
    address."""
    text = (world.cwd / "env.txt").read_text()
    variables = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert variables["GOOGLE_GEMINI_BASE_URL"].startswith("http://127.0.0.1:")
    assert KEY not in text
    assert upstream not in text


# Forks of the host.

# A child that hangs prints its stacks after 40 seconds and exits.
FORKING = """
import faulthandler, json, multiprocessing, sys, warnings

import anyio, msgspec
import geminids

options = msgspec.json.decode(sys.argv[1].encode(), type=geminids.Options)
manner = sys.argv[2]
fork = multiprocessing.get_context("fork")
warnings.simplefilter("ignore", DeprecationWarning)


def summary(result):
    used = [used.request for turn in result.turns for used in turn.tokens]
    failure = result.failure and result.failure.message
    return [result.outcome, result.usage and result.usage.input, used, failure]


def in_child(pipe):
    faulthandler.dump_traceback_later(40, exit=True)
    if manner == "idle":
        pipe.recv()  # keeps copies of all open descriptors until the parent is done
        pipe.send(None)
    else:
        pipe.send(summary(geminids.ask_sync("hello from the child", options)))


async def main():
    ours, theirs = fork.Pipe()
    child = fork.Process(target=in_child, args=(theirs,))
    async with geminids.open_run("hello from the parent", options) as run:
        async for event in run:
            if isinstance(event, geminids.ToolStarted) and child.pid is None:
                child.start()
    if manner == "idle":
        ours.send(None)
    of_child = await anyio.to_thread.run_sync(lambda: ours.recv() if ours.poll(60) else "no answer")
    child.join(30)
    print(json.dumps({"parent": summary(run.result), "child": of_child, "code": child.exitcode}))


anyio.run(main)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.parametrize("manner", ["runs", "idle"])
def test_the_host_forks_in_the_middle_of_a_run(world: Any, manner: str) -> None:
    """A forked child that runs geminids has its own gateway, and an idle forked child does not
    disturb the parent's run. Parent and child count their own requests, and only gateways have the
    key."""

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        more = 50 if "child" in request.last_user_text else 0
        if not request.turn_results:
            call = Call("run_shell_command", {"command": "env > env.txt"})
            return Reply(calls=[call], usage=make_usage(0, more))
        return Reply(text="done", usage=make_usage(1, more))

    with SIGN_INS["key"].serve(script, world.root) as google:
        options = msgspec.json.encode(options_for_server(world, google, approval="yolo")).decode()
        argv = [sys.executable, "-c", FORKING, options, manner]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        asked = paid_requests(google)
        assert {one.key for one in google.asked} == {KEY}
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["code"] == 0, done.stderr
    for process, sum_of_input in (("parent", 2_001), ("child", 3_001)):
        if report[process] is not None:
            outcome, used, request_numbers, failure = report[process]
            assert (outcome, used, request_numbers) == ("success", sum_of_input, [1, 2]), failure
    expected = ["parent"] * 2 + ["child"] * 2 * (manner == "runs")
    assert sorted(one.request.last_user_text.split()[-1] for one in asked) == sorted(expected)
    assert_only_the_gateway(world, google.url)


# Many runs at once.


def test_fifty_leases_at_once(world: Any, wait_until: Any) -> None:
    """Fifty clients, each with its own lease, send requests through one gateway at once. Each lease
    receives messages about its own requests only."""
    import http.client

    from geminids.gateway.forward.credential import ApiKey
    from geminids.gateway.forward.forward import Forwarding
    from geminids.gateway.forward.network_settings import NetworkSettings
    from geminids.gateway.lease import Lease
    from geminids.gateway.messages import Answered
    from geminids.gateway.registry import open_lease

    def script(request: Request) -> Reply | None:
        number = int(request.last_user_text.split()[-1])
        return Reply(
            text=f"for {number}", usage=ReplyUsage(input=1_000 + number, output=number), method="any"
        )

    received: list[list[Any]] = [[] for _ in range(50)]
    wrong: list[str] = []

    def send_requests(number: int, port: int, token: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"x-goog-api-key": token, "content-type": "application/json"}
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": f"I am {number}"}]}]})
        for _ in range(10):
            connection.request("POST", f"/v1beta/models/{MODEL}:generateContent", body, headers)
            answer = connection.getresponse().read().decode()
            if f'"for {number}"' not in answer:
                wrong.append(answer)
        connection.close()

    with FakeGoogle(script, with_key=KEY) as google:
        leases = [
            open_lease(Lease(Forwarding(google.url, ApiKey(KEY), NetworkSettings()), received[number].append))
            for number in range(50)
        ]
        try:
            leases[0].begin()
            port = int(leases[0].url.rpartition(":")[2])
            threads = [
                threading.Thread(target=send_requests, args=(number, port, lease.token))
                for number, lease in enumerate(leases)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
            # The gateway reports a request after it has sent the last byte of the answer.
            assert wait_until(lambda: sum(map(len, received)) >= 500, 10)
        finally:
            for lease in leases:
                lease.close()
    assert wrong == []
    assert len(google.asked) == 500
    for number, messages in enumerate(received):
        answered = [one for one in messages if isinstance(one, Answered)]
        assert [one.counts.input for one in answered if one.counts] == [1_000 + number] * 10
        assert [one.number for one in answered] == list(range(1, 11))


@deep
@pytest.mark.timeout(400)
def test_fifty_runs_at_once(world: Any) -> None:
    """Fifty CLIs share one gateway, and the API answers only when all have sent a request. Each run
    has the answer and the tokens of its own request, and their sum is what the API counted."""
    all_sent = threading.Barrier(50)

    def used_by(number: int) -> ReplyUsage:
        return ReplyUsage(
            input=1_000 + number, output=100 + number, cached=number, thinking=2 * number, tool=0
        )

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        with suppress(threading.BrokenBarrierError):
            all_sent.wait(300)
        number = int(request.last_user_text.split()[-1])
        return Reply(text=f"for {number}", usage=used_by(number))

    results: dict[int, list[Any]] = {}

    async def run_once(options: geminids.Options, number: int) -> None:
        async with geminids.open_run(f"run {number}", options) as run:
            results[number] = [event async for event in run]

    async def main(google: Any) -> None:
        # Fifty CLIs start on a few cores.
        options = options_for_server(world, google, start_timeout=350, idle_timeout=350, timeout=380)
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(run_once, options, number)

    with SIGN_INS["key"].serve(script, world.root) as google:
        anyio.run(main, google)
        asked = paid_requests(google)
        counted_by_api = google.counted()
    assert sorted(results) == list(range(50))
    for number, events in results.items():
        finished = check_events(events)
        assert (finished.outcome, finished.answer) == ("success", f"for {number}"), finished.failure
        own = [one for one in asked if one.request.last_user_text == f"run {number}"]
        assert usage_of_events(events) == usage_of_api(own)
        (used,) = select_events(events, TokensUsed)
        assert used.request == 1
        assert ReplyUsage(used.input, used.output, used.cached, used.thinking, used.tool) == used_by(number)
    assert not all_sent.broken  # the API had fifty open requests at the same time
    assert len(asked) == 50
    sums = [events[-1].usage for events in results.values()]
    assert counted_by_api["promptTokenCount"] == sum(usage.input for usage in sums)
    assert counted_by_api["candidatesTokenCount"] == sum(usage.output for usage in sums)
    assert counted_by_api["cachedContentTokenCount"] == sum(usage.cached for usage in sums)
    assert counted_by_api["thoughtsTokenCount"] == sum(usage.thinking for usage in sums)
    assert counted_by_api["totalTokenCount"] == sum(usage.total for usage in sums)


@deep
@pytest.mark.timeout(400)
def test_fifty_chats_at_once(world: Any) -> None:
    """Fifty chats in one pool each have their own tool call and answer, and report only their own
    requests."""

    def script(request: Request) -> Reply | None:
        if request.method != "stream":
            return None
        number = int(request.last_user_text.split()[-1])
        if not request.turn_results:
            return Reply(calls=[Call("glob", {"pattern": f"*.{number}"})], usage=make_usage(0, number))
        return Reply(text=f"for {number}", usage=make_usage(1, number))

    results: dict[int, list[Any]] = {}

    async def run_chat_once(pool: geminids.Pool, number: int) -> None:
        async with pool.chat() as chat:
            results[number] = [event async for event in chat.send(f"I am {number}")]

    async def main(google: Any) -> None:
        options = options_for_server(world, google, start_timeout=300)
        async with geminids.Pool(options, size=2, chats=25) as pool, anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(run_chat_once, pool, number)

    with SIGN_INS["key"].serve(script, world.root) as google:
        anyio.run(main, google)
        asked = paid_requests(google)
    assert len(asked) == 100
    for number, events in results.items():
        assert events[-1].answer == f"for {number}", events[-1].failure
        own = [one for one in asked if one.request.last_user_text == f"I am {number}"]
        assert usage_of_events(events) == usage_of_api(own)
        assert [used.request for used in select_events(events, TokensUsed)] == [1, 2]
        assert len(select_events(events, ToolFinished)) == 1
