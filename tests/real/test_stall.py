"""Each cause of a stall made real with the real CLI, and named rightly within 2 s of the threshold."""

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
"""Longer than the CLI takes to load, which may be told as work on a busy machine."""
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
        said = dict(protocolVersion="2025-06-18", capabilities=dict(tools={}), serverInfo=dict(name="s", version="1"))
        result = said if request["method"] == "initialize" else dict(tools=tools)
        print(json.dumps(dict(jsonrpc="2.0", id=request["id"], result=result)), flush=True)
"""


class Seen:
    """The first stall that is no work of loading, how long after the last word of the run, and the end."""

    def __init__(self, world: Any, each: Callable[[Any], None] = lambda event: None, **fields: Any) -> None:
        self._each = each
        self._world = world
        self._born = 0.0
        options = world.options(**{"approval": "yolo", "stall_after": AFTER, "timeout": 60, **fields})
        self.events: list[Any] = []
        self.stalls: list[Any] = []
        anyio.run(self._watch, options)

    async def _watch(self, options: Any) -> None:
        async with geminids.open_run("hello", options) as run:
            async for event in run:
                self.events.append(event)
                self._each(event)
                if isinstance(event, Notice) and event.stall is not None and event.stall.cause != "busy":
                    self.stalls.append(event)
                    with contextlib.suppress(psutil.Error, ValueError):
                        self._born = self._born or psutil.Process(event.stall.pid or -1).create_time()
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
    def late(self) -> float:
        """How long after the threshold it was told. A busy machine lets the CLI take seconds from its last word to
        the request or the shell that it is silent with: then the silence begins with that."""
        at = self.events.index(self.stalls[0])
        before = [one.at for one in self.events[:at] if not isinstance(one, Notice) or one.code == "session"]
        asked = [one.at for one in self._world.gateway.requests]
        late: float = self.stalls[0].at / 1000 - max(before[-1] / 1000, self._born, *asked) - AFTER
        return late


@GATEWAY
def test_a_shell_that_sleeps(world: Any, gateway: str) -> None:
    """The command, its process, its children, and that it does nothing."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 301; echo x"})])
    seen = Seen(world, gateway=gateway)
    stall = seen.first
    assert (stall.cause, stall.tool, stall.command) == ("tool", "run_shell_command", "sleep 301; echo x")
    assert stall.pid is not None and stall.cpu is not None and stall.cpu < 2
    assert [one.command for one in stall.children] == ["sleep 301"]
    assert "`sleep 301; echo x` has been running for" in seen.message
    assert 0 <= seen.late < 2


@deep
def test_two_shells_of_one_answer(world: Any) -> None:
    """The one that still runs is named, though a headless run has told the end of neither."""
    calls = [
        ("run_shell_command", {"command": command}) for command in ("sleep 0.3; echo a", "sleep 302; echo b")
    ]
    world.gateway.reply(calls=calls)
    seen = Seen(world)
    assert (seen.first.cause, seen.first.command) == ("tool", "sleep 302; echo b")
    assert [one.command for one in seen.first.children] == ["sleep 302"]


@deep
def test_what_a_shell_has_left(world: Any) -> None:
    """The shell is gone, and the tool is not, while what it left holds its output: that is named."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 303 & echo x"})])
    world.gateway.reply(delay=300, text="late")
    seen = Seen(world)
    assert (seen.first.cause, [one.command for one in seen.first.children]) == ("tool", ["sleep 303"])
    assert "its shell has ended, and the CLI waits for its background processes" in seen.message


@deep
def test_a_pipeline_is_one_tool(world: Any) -> None:
    """Both halves of a pipeline are children of the shell tool."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "sleep 304 | cat"})])
    stall = Seen(world).first
    assert (stall.cause, stall.child_count) == ("tool", 2)


@GATEWAY
def test_a_cli_that_a_signal_has_stopped(world: Any, gateway: str) -> None:
    """That is the reason, whatever it waited for: the API would have no part in it."""
    world.gateway.reply(delay=300, text="late")

    def stop(event: Any) -> None:
        if isinstance(event, geminids.Started):
            threading.Thread(target=stop_later, args=(event.pid,)).start()

    def stop_later(pid: int) -> None:
        assert world.gateway.wait_for_requests(1, 60)
        os.kill(pid, signal.SIGSTOP)

    seen = Seen(world, each=stop, gateway=gateway, grace=0.5)  # one that is stopped is not heard of before
    (started,) = (one for one in seen.events if isinstance(one, geminids.Started))
    assert (seen.first.cause, seen.first.pid) == ("stopped", started.pid)
    assert f"continue it with `kill -CONT {started.pid}`" in seen.message


@deep
def test_a_shell_that_works(world: Any) -> None:
    """The same, with its share of a core: who looks can tell work from a hang."""
    command = f"{sys.executable} -c 'while True: pass'"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    seen = Seen(world)
    assert (seen.first.cause, seen.first.command) == ("tool", command)
    assert seen.first.cpu is not None and seen.first.cpu > 10
    assert 0 <= seen.late < 2


@GATEWAY
def test_an_api_that_does_not_answer(world: Any, gateway: str) -> None:
    """With the gateway which request, to which model, sent when; without it, the connection."""
    world.gateway.reply(delay=300, text="late")
    seen = Seen(world, gateway=gateway)
    assert seen.first.cause == "api"
    if gateway == "on":
        assert (seen.first.request, seen.first.model is None) == (1, False)
        assert re.search(rf"request 1 to {seen.first.model} was sent [3-5] s ago, no byte yet", seen.message)
    else:
        port = world.gateway.url.rpartition(":")[2].strip("/")
        assert f"the CLI has a connection to 127.0.0.1:{port} open" in seen.message
    assert -0.5 < seen.late < 2


@deep
@pytest.mark.parametrize("gateway", ["on", "off"])
def test_an_answer_that_stops(world: Any, gateway: str) -> None:
    """A stream that has begun and goes no further; the time since its last byte is told where it is seen."""
    world.gateway.reply(text=["one", "two"], stall=True)
    seen = Seen(world, gateway=gateway)
    assert seen.first.cause == "api"
    if gateway == "on":
        assert re.search(r"the last byte came [3-5] s ago", seen.message)
    assert -0.5 < seen.late < 2


@GATEWAY
def test_an_api_that_has_no_time(world: Any, gateway: str) -> None:
    """A 429 with a wait: which attempt, of how many, after what, and when the next one comes."""
    for _ in range(3):
        world.gateway.reply(status=429, error="Resource exhausted", details=[WAIT])
    seen = Seen(world, gateway=gateway)
    stall = seen.first
    assert (stall.cause, stall.attempt, stall.of, stall.http_status) == ("retry", 1, 10, 429)
    assert stall.next_s is not None and 4 < stall.next_s < 9
    assert seen.message.startswith("API retry 1 of 10 after HTTP 429, next in about ")
    assert -0.5 < seen.late < 2


def test_a_request_that_is_held_back(world: Any) -> None:
    """Ours to say: the rate that the user has set."""
    world.gateway.reply(calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="done")
    seen = Seen(world, gateway="on", requests_per_minute=1)
    stall = seen.first
    assert (stall.cause, stall.request) == ("held", 2)
    assert stall.next_s is not None and stall.next_s > 20
    assert seen.message.endswith("more: the limit is 1 requests a minute")
    assert -0.5 < seen.late < 2


def server(tmp_path: Path, stuck: str) -> dict[str, McpServer]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return {"s": McpServer(command=sys.executable, args=(str(script), stuck))}


@GATEWAY
def test_a_cli_that_does_nothing(world: Any, tmp_path: Path, gateway: str) -> None:
    """No request, no connection, no CPU: it waits for an MCP server that never comes up, which is its child."""
    seen = Seen(world, gateway=gateway, mcp_servers=server(tmp_path, "initialize"))
    stall = seen.first
    assert (stall.cause, stall.tool) == ("idle", None)
    assert stall.cpu is not None and stall.cpu < 10
    assert ("no request is in flight" if gateway == "on" else "no connection is open") in seen.message
    assert [one.command.endswith("server.py initialize") for one in stall.children] == [True]


@deep
def test_a_tool_of_an_mcp_server(world: Any, tmp_path: Path) -> None:
    """The tool, the server that it is of, and that server's process."""
    world.gateway.reply(calls=[("mcp_s_poke", {})])
    seen = Seen(world, mcp_servers=server(tmp_path, "tools/call"))
    stall = seen.first
    assert (stall.cause, stall.tool) == ("tool", "mcp_s_poke")
    assert "in the MCP server s (pid " in seen.message
    assert stall.command is not None and stall.command.endswith("server.py tools/call")
    assert 0 <= seen.late < 2


def test_somebody_has_to_answer(world: Any) -> None:
    """On the warm lane: the tool and the command that wait for a yes, and since when."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "touch made"})])
    world.gateway.reply(text="done")
    told: list[Any] = []

    async def ask() -> None:
        answered = anyio.Event()

        async def decide(asked: PermissionAsked) -> str:
            await answered.wait()
            return "allow"

        options = world.options(stall_after=AFTER, permissions=Permissions(shell="ask"))
        async with Pool(options, size=1, on_permission=decide) as pool, pool.chat() as chat:  # type: ignore[arg-type]
            async for event in chat.send("go"):
                told.append(event)
                if isinstance(event, Notice) and event.stall is not None:
                    answered.set()

    anyio.run(ask)
    (notice,) = (one for one in told if isinstance(one, Notice) and one.stall is not None)
    (asked,) = (one for one in told if isinstance(one, PermissionAsked))
    assert notice.stall is not None
    assert (notice.stall.cause, notice.stall.tool) == ("permission", "run_shell_command")
    assert notice.stall.command == "touch made"
    assert re.fullmatch(r"waiting [3-5] s for permission: run_shell_command `touch made`", notice.message)
    assert 0 <= (notice.at - asked.at) / 1000 - AFTER < 2
    assert told[-1].outcome == "success"


@deep
@pytest.mark.parametrize("gateway", ["on", "off"])
def test_two_chats_of_one_process(world: Any, gateway: str) -> None:
    """Each says what it waits for itself: the same command has another process in each, and one waits for the API."""
    command = "echo $$ > {}.pid; sleep 305"
    for name in ("one", "two"):
        calls = [("run_shell_command", {"command": command.format(name)})]
        world.gateway.when(f"go {name}", calls=calls)
    world.gateway.when("go three", delay=300, text="late")
    told: dict[str, Any] = {}

    async def turn(pool: Pool, name: str, tasks: Any) -> None:
        async with pool.chat() as chat:
            async for event in chat.send(f"go {name}"):
                if isinstance(event, Notice) and event.stall is not None and event.stall.cause != "busy":
                    told[name] = event
                    if len(told) == 3:
                        tasks.cancel_scope.cancel()

    async def ask() -> None:
        options = world.options(stall_after=AFTER, approval="yolo", gateway=gateway)
        with anyio.fail_after(90):
            async with Pool(options, size=1) as pool, anyio.create_task_group() as tasks:
                for name in ("one", "two", "three"):
                    tasks.start_soon(turn, pool, name, tasks)

    anyio.run(ask)
    for name in ("one", "two"):
        stall = told[name].stall
        assert (stall.cause, stall.command) == ("tool", command.format(name))
        assert stall.pid in (None, int((world.cwd / f"{name}.pid").read_text()))
    assert told["three"].stall.cause == "api"
    if gateway == "off":
        assert told["three"].message.endswith("; other chats share this process")


LONG = {
    "answer": {"text": [f"piece {number} " for number in range(11)], "pause": 0.6},
    "thinking": {
        "thought": [f"**T{number}** of this and that" for number in range(11)],
        "text": "x",
        "pause": 0.6,
    },
}


@pytest.mark.parametrize(
    ("what", "gateway"),
    [
        ("answer", "on"),
        pytest.param("answer", "off", marks=deep),
        pytest.param("thinking", "on", marks=deep),
    ],
)
def test_what_streams_is_no_stall(world: Any, what: str, gateway: str) -> None:
    """Twice as long as the threshold, in pieces: no notice. The gateway sees the thoughts too."""
    world.gateway.reply(**LONG[what])
    events = world.events(gateway=gateway, stall_after=AFTER)
    assert events[-1].outcome == "success"
    assert [one for one in events if getattr(one, "stall", None) and one.stall.cause != "busy"] == []


@GATEWAY
def test_an_idle_time_out_says_what_it_waited_for(world: Any, gateway: str) -> None:
    """The reason of the run's end has the reason of its silence."""
    world.gateway.reply(delay=300, text="late")
    result = world.ask(gateway=gateway, idle_timeout=3, stall_after=None)
    assert result.outcome == "timed_out"
    # It was looked at before the end, and a busy machine may have let the CLI speak to the API a second late.
    waited = "waiting for the API: request 1 to" if gateway == "on" else "waiting for an answer for [1-3] s"
    assert re.match(f"timed out: no output and no running tool for 3 s; {waited}", result.reason)
    assert result.stall is not None and result.stall.cause == "api"
