"""Stall notices with the real CLI: each names its cause, most within 2 s of the threshold."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import geminids
from geminids import McpServer, Notice, PermissionAsked, Permissions, Stall
from geminids.warm.pool import Pool

pytestmark = pytest.mark.real

AFTER = 3.0
"""Threshold in seconds. Longer than the CLI takes to load; on a busy machine a shorter one would
report the loading as a stall."""
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}
deep = pytest.mark.deep
GATEWAY = pytest.mark.parametrize("gateway", ["on", pytest.param("off", marks=deep)])
SERVER = """\
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") in sys.argv[1:]:
        time.sleep(600)
    if "id" in request:
        tools = [dict(name="poke", description="pokes", inputSchema=dict(type="object", properties={}))]
        hello = dict(protocolVersion="2025-06-18", capabilities=dict(tools={}), serverInfo=dict(name="s", version="1"))
        result = hello if request["method"] == "initialize" else dict(tools=tools)
        print(json.dumps(dict(jsonrpc="2.0", id=request["id"], result=result)), flush=True)
"""


class StalledRun:
    """Run until the first stall notice whose cause is not `busy`, then stop the run."""

    def __init__(
        self, world: Any, on_event: Callable[[Any], None] = lambda event: None, **fields: Any
    ) -> None:
        self._on_event = on_event
        self._world = world
        self._process_started_at = 0.0
        options = world.options(**{"approval": "yolo", "stall_after": AFTER, "timeout": 60, **fields})
        self.events: list[Any] = []
        self.stalls: list[Any] = []
        anyio.run(self._watch, options)

    async def _watch(self, options: Any) -> None:
        async with geminids.open_run("hello", options) as run:
            async for event in run:
                self.events.append(event)
                self._on_event(event)
                if isinstance(event, Notice) and event.stall is not None and event.stall.cause != "busy":
                    self.stalls.append(event)
                    with contextlib.suppress(psutil.Error, ValueError):
                        self._process_started_at = (
                            self._process_started_at or psutil.Process(event.stall.pid or -1).create_time()
                        )
                    run.stop()

    @property
    def first(self) -> Stall:
        assert self.stalls, self.events
        stall: Stall = self.stalls[0].stall
        return stall

    @property
    def message(self) -> str:
        text: str = self.stalls[0].message
        return text

    @property
    def delay(self) -> float:
        """Seconds between the threshold and the notice.

        The silence starts with the last event, request or process start, because a slow machine may
        need seconds between the last event and the request or shell that the CLI waits for."""
        at = self.events.index(self.stalls[0])
        before = [
            event.at for event in self.events[:at] if not isinstance(event, Notice) or event.code == "session"
        ]
        requested = [request.at for request in self._world.gateway.requests]
        silent_since = max(before[-1] / 1000, self._process_started_at, *requested)
        delay: float = self.stalls[0].at / 1000 - silent_since - AFTER
        return delay


@GATEWAY
def test_a_shell_that_sleeps(world: Any, gateway: str) -> None:
    """The notice about a sleeping shell tool names the command, its process and children, and its
    low CPU share."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 301; echo x"})])
    stalled = StalledRun(world, gateway=gateway)
    stall = stalled.first
    assert (stall.cause, stall.tool, stall.command) == ("tool", "run_shell_command", "sleep 301; echo x")
    assert stall.pid is not None and stall.cpu is not None and stall.cpu < 2
    assert [one.command for one in stall.children] == ["sleep 301"]
    assert "`sleep 301; echo x` has been running for" in stalled.message
    assert 0 <= stalled.delay < 2


@deep
def test_two_shells_of_one_answer(world: Any) -> None:
    """If one of two shell tools has ended, the notice names the one that still runs, although a
    headless CLI has reported the end of neither."""
    calls = [
        ("run_shell_command", {"command": command}) for command in ("sleep 0.3; echo a", "sleep 302; echo b")
    ]
    world.gateway.reply(calls=calls)
    stalled = StalledRun(world)
    assert (stalled.first.cause, stalled.first.command) == ("tool", "sleep 302; echo b")
    assert [one.command for one in stalled.first.children] == ["sleep 302"]


@deep
def test_a_process_that_outlives_its_shell(world: Any) -> None:
    """If a background process keeps a tool call open after its shell has exited, the notice names
    that process."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 303 & echo x"})])
    world.gateway.reply(delay=300, text="late")
    stalled = StalledRun(world)
    assert (stalled.first.cause, [one.command for one in stalled.first.children]) == ("tool", ["sleep 303"])
    assert "its shell has ended, and the CLI waits for its background processes" in stalled.message


@deep
def test_a_pipeline_is_one_tool(world: Any) -> None:
    """The notice counts both processes of a pipeline as children of the shell tool."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 304 | cat"})])
    stall = StalledRun(world).first
    assert (stall.cause, stall.child_count) == ("tool", 2)


@GATEWAY
def test_a_cli_that_a_signal_has_stopped(world: Any, gateway: str) -> None:
    """If SIGSTOP has stopped the CLI, the notice names that as the cause, although the CLI also
    waits for the API. It says how to continue the process."""
    world.gateway.reply(delay=300, text="late")

    def stop(event: Any) -> None:
        if isinstance(event, geminids.Started):
            threading.Thread(target=stop_later, args=(event.pid,)).start()

    def stop_later(pid: int) -> None:
        assert world.gateway.wait_for_requests(1, 60)
        os.kill(pid, signal.SIGSTOP)

    # A stopped CLI does not react to SIGTERM, so the run ends only after the grace.
    stalled = StalledRun(world, on_event=stop, gateway=gateway, grace=0.5)
    (started,) = (one for one in stalled.events if isinstance(one, geminids.Started))
    assert (stalled.first.cause, stalled.first.pid) == ("stopped", started.pid)
    assert f"To continue it, run `kill -CONT {started.pid}`" in stalled.message


@deep
def test_a_shell_that_works(world: Any) -> None:
    """The notice about a busy shell tool has its CPU share."""
    command = f"{sys.executable} -c 'while True: pass'"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    stalled = StalledRun(world)
    assert (stalled.first.cause, stalled.first.command) == ("tool", command)
    assert stalled.first.cpu is not None and stalled.first.cpu > 10
    assert 0 <= stalled.delay < 2


@GATEWAY
def test_an_api_that_does_not_answer(world: Any, gateway: str) -> None:
    """If the API does not answer, the notice names the request, the model and the time since the
    request was sent. Without the gateway it names the open connection."""
    world.gateway.reply(delay=300, text="late")
    stalled = StalledRun(world, gateway=gateway)
    assert stalled.first.cause == "api"
    if gateway == "on":
        assert (stalled.first.request, stalled.first.model is None) == (1, False)
        assert re.search(
            rf"request 1 to {stalled.first.model} was sent [3-5] s ago; no data has arrived yet",
            stalled.message,
        )
    else:
        port = world.gateway.url.rpartition(":")[2].strip("/")
        assert f"the CLI has an open connection to 127.0.0.1:{port}" in stalled.message
    assert -0.5 < stalled.delay < 2


@deep
@pytest.mark.parametrize("gateway", ["on", "off"])
def test_an_answer_that_stops(world: Any, gateway: str) -> None:
    """If an answer stops in the middle, the notice names the API as the cause. With the gateway it
    also has the time since the last byte."""
    world.gateway.reply(text=["one", "two"], stall=True)
    stalled = StalledRun(world, gateway=gateway)
    assert stalled.first.cause == "api"
    if gateway == "on":
        assert re.search(r"the last data arrived [3-5] s ago", stalled.message)
    assert -0.5 < stalled.delay < 2


@GATEWAY
def test_a_rate_limited_api(world: Any, gateway: str) -> None:
    """While the CLI waits after HTTP 429, the notice has the number of the retry, its reason and
    the time until the next request."""
    for _ in range(3):
        world.gateway.reply(status=429, error="Resource exhausted", details=[WAIT])
    stalled = StalledRun(world, gateway=gateway)
    stall = stalled.first
    assert (stall.cause, stall.attempt, stall.of, stall.http_status) == ("retry", 1, 10, 429)
    assert stall.next_s is not None and 4 < stall.next_s < 9
    assert stalled.message.startswith("API retry 1 of 10 after HTTP 429, next attempt in about ")
    assert -0.5 < stalled.delay < 2


def test_a_request_that_waits_for_the_rate_limit(world: Any) -> None:
    """If the user's rate limit delays a request, the notice names the limit and the remaining
    time."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="done")
    stalled = StalledRun(world, gateway="on", requests_per_minute=1)
    stall = stalled.first
    assert (stall.cause, stall.request) == ("held", 2)
    assert stall.next_s is not None and stall.next_s > 20
    assert stalled.message.endswith("before it is sent: the limit is 1 requests a minute")
    assert -0.5 < stalled.delay < 2


def hanging_server(tmp_path: Path, method: str) -> dict[str, McpServer]:
    """Return an MCP server that never answers requests with this method."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return {"s": McpServer(command=sys.executable, args=(str(script), method))}


@GATEWAY
def test_a_cli_that_does_nothing(world: Any, tmp_path: Path, gateway: str) -> None:
    """If the CLI waits for an MCP server at its start, the notice says that it is idle and lists
    the server's process."""
    stalled = StalledRun(world, gateway=gateway, mcp_servers=hanging_server(tmp_path, "initialize"))
    stall = stalled.first
    assert (stall.cause, stall.tool) == ("idle", None)
    assert stall.cpu is not None and stall.cpu < 10
    assert ("no request is in flight" if gateway == "on" else "no connection is open") in stalled.message
    assert [one.command.endswith("server.py initialize") for one in stall.children] == [True]


@deep
def test_a_tool_of_an_mcp_server(world: Any, tmp_path: Path) -> None:
    """If a tool of an MCP server does not return, the notice names the tool, the server and the
    server's process."""
    world.gateway.reply(calls=[("mcp_s_poke", {})])
    stalled = StalledRun(world, mcp_servers=hanging_server(tmp_path, "tools/call"))
    stall = stalled.first
    assert (stall.cause, stall.tool) == ("tool", "mcp_s_poke")
    assert "in the MCP server s (pid " in stalled.message
    assert stall.command is not None and stall.command.endswith("server.py tools/call")
    assert 0 <= stalled.delay < 2


def test_a_permission_request_without_an_answer(world: Any) -> None:
    """On the warm transport, the notice names the tool and command that wait for permission, and
    how long they have waited."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "touch made"})])
    world.gateway.reply(text="done")
    events: list[Any] = []

    async def ask() -> None:
        answered = anyio.Event()

        async def decide(asked: PermissionAsked) -> str:
            await answered.wait()
            return "allow"

        options = world.options(stall_after=AFTER, permissions=Permissions(shell="ask"))
        async with Pool(options, size=1, on_permission=decide) as pool, pool.chat() as chat:  # type: ignore[arg-type]
            async for event in chat.send("go"):
                events.append(event)
                if isinstance(event, Notice) and event.stall is not None:
                    answered.set()

    anyio.run(ask)
    (notice,) = (one for one in events if isinstance(one, Notice) and one.stall is not None)
    (asked,) = (one for one in events if isinstance(one, PermissionAsked))
    assert notice.stall is not None
    assert (notice.stall.cause, notice.stall.tool) == ("permission", "run_shell_command")
    assert notice.stall.command == "touch made"
    assert re.fullmatch(r"waiting for permission for [3-5] s: run_shell_command `touch made`", notice.message)
    assert 0 <= (notice.at - asked.at) / 1000 - AFTER < 2
    assert events[-1].outcome == "success"


@deep
@pytest.mark.parametrize("gateway", ["on", "off"])
def test_two_chats_of_one_process(world: Any, gateway: str) -> None:
    """Chats that share one process each report the cause of their own stall."""
    command = "echo $$ > {}.pid; sleep 305"
    for name in ("one", "two"):
        calls = [("run_shell_command", {"command": command.format(name)})]
        world.gateway.when(f"go {name}", calls=calls)
    world.gateway.when("go three", delay=300, text="late")
    notices: dict[str, Any] = {}

    async def turn(pool: Pool, name: str, tasks: Any) -> None:
        async with pool.chat() as chat:
            async for event in chat.send(f"go {name}"):
                if isinstance(event, Notice) and event.stall is not None and event.stall.cause != "busy":
                    notices[name] = event
                    if len(notices) == 3:
                        tasks.cancel_scope.cancel()

    async def ask() -> None:
        options = world.options(stall_after=AFTER, approval="yolo", gateway=gateway)
        with anyio.fail_after(90):
            async with Pool(options, size=1) as pool, anyio.create_task_group() as tasks:
                for name in ("one", "two", "three"):
                    tasks.start_soon(turn, pool, name, tasks)

    anyio.run(ask)
    for name in ("one", "two"):
        stall = notices[name].stall
        assert (stall.cause, stall.command) == ("tool", command.format(name))
        assert stall.pid in (None, int((world.cwd / f"{name}.pid").read_text()))
    assert notices["three"].stall.cause == "api"
    if gateway == "off":
        assert notices["three"].message.endswith("; other chats share this process")


LONG_STREAMS = {
    "answer": {"text": [f"piece {number} " for number in range(11)], "pause": 0.6},
    "thinking": {
        "thought": [f"**T{number}** of this and that" for number in range(11)],
        "text": "x",
        "pause": 0.6,
    },
}


@pytest.mark.parametrize(
    ("stream", "gateway"),
    [
        ("answer", "on"),
        pytest.param("answer", "off", marks=deep),
        pytest.param("thinking", "on", marks=deep),
    ],
)
def test_a_stream_is_no_stall(world: Any, stream: str, gateway: str) -> None:
    """A stream that lasts twice the threshold gives no stall notice. With the gateway, this also
    holds for a stream of thoughts."""
    world.gateway.reply(**LONG_STREAMS[stream])
    events = world.events(gateway=gateway, stall_after=AFTER)
    assert events[-1].outcome == "success"
    assert [one for one in events if getattr(one, "stall", None) and one.stall.cause != "busy"] == []


@GATEWAY
def test_an_idle_time_out_says_what_it_waited_for(world: Any, gateway: str) -> None:
    """The reason of an idle time-out includes the cause of the stall."""
    world.gateway.reply(delay=300, text="late")
    result = world.ask(gateway=gateway, idle_timeout=3, stall_after=None)
    assert result.outcome == "timed_out"
    # The cause was determined before the time-out, and on a busy machine the CLI may send its
    # request a second late.
    waited = "waiting for the API: request 1 to" if gateway == "on" else "waiting for an answer for [1-3] s"
    assert re.match(f"timed out: no output and no running tool for 3 s; {waited}", result.reason)
    assert result.stall is not None and result.stall.cause == "api"
