"""Tests of `reason_of`: the cause, the message and the fields of a stall."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import PermissionAsked, Stall, ToolStarted
from geminids.gateway.messages import InFlightRequest
from geminids.run.stall.explain import level_of, reason_of
from geminids.run.stall.snapshot import (
    Failed,
    ProcessInfo,
    ProcessSnapshot,
    Situation,
    Span,
    StallSnapshot,
    key_of,
    needs_look,
)

EVENT_FIELDS: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}
SPAN = Span(silent=100.0, now=140.0, wall=140.0)


CLI = ProcessInfo(1, 0, 10.0, "node gemini", 5.0)


def explain(situation: Situation, *children: ProcessInfo, **fields: Any) -> tuple[str, Stall]:
    """Return the message and the stall. `children` and `fields` add a snapshot of processes."""
    if (children or fields) and "look" not in fields:
        processes = (fields.pop("cli", CLI), *children)
        fields["look"] = ProcessSnapshot(140.0, processes, fields.pop("peers", ()), fields.pop("strays", ()))
    reason = reason_of(StallSnapshot(situation=situation, span=SPAN, clean=str, **fields))
    assert reason is not None
    return reason.words, reason.stall


def request(**fields: Any) -> InFlightRequest:
    request = InFlightRequest(
        3, "gemini-x", "main", is_paid=True, attempt=fields.pop("attempt", 1), body=7, came=105.0
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def tool(name: str, command: str | None = None, call_id: str = "t") -> ToolStarted:
    arguments = None if command is None else {"command": command}
    return ToolStarted(
        **{**EVENT_FIELDS, "at": 110_000}, id=call_id, name=name, kind="other", title=name, input=arguments
    )


def shell(command: str, call_id: str = "t") -> ToolStarted:
    return tool("run_shell_command", command, call_id)


@pytest.mark.parametrize(
    ("in_flight", "message", "cause"),
    [
        (
            request(left=109.0),
            "waiting for the API: request 3 to gemini-x was sent 31 s ago; no data has arrived yet",
            "api",
        ),
        (
            request(left=109.0, first=110.0, last=128.0),
            "waiting for the API: request 3 to gemini-x was sent 31 s ago; the last data arrived 12 s ago",
            "api",
        ),
        (
            request(left=109.0, attempt=2),
            "waiting for the API: request 3 to gemini-x (attempt 2) was sent 31 s ago; no data has arrived yet",
            "api",
        ),
        (
            request(held_until=160.0, held_why="the limit is 10 requests a minute"),
            "request 3 to gemini-x waits 20 s more before it is sent: the limit is 10 requests a minute",
            "held",
        ),
    ],
)
def test_requests_of_the_gateway(in_flight: InFlightRequest, message: str, cause: str) -> None:
    """The message says when the request was sent, when its last byte came, or how long it is held
    back."""
    assert explain(Situation(gateway=True, requests=(in_flight,)))[0] == message
    assert explain(Situation(gateway=True, requests=(in_flight,)))[1].cause == cause


def test_the_order_of_causes() -> None:
    """A permission request is reported before a shell tool, a shell tool before the API, and the
    API before other tools."""
    asked = PermissionAsked(
        **EVENT_FIELDS, id="p", tool="run_shell_command", kind="execute", title="t", command="npm test"
    )
    in_flight = (request(left=109.0),)
    agent, bash = tool("invoke_agent"), tool("run_shell_command")
    assert explain(Situation(permission=(asked, 110.0), tools=(bash,), requests=in_flight))[0] == (
        "waiting for permission for 30 s: run_shell_command `npm test`"
    )
    assert explain(Situation(tools=(agent, bash), requests=in_flight))[1].cause == "tool"
    message, stall = explain(Situation(tools=(agent,), requests=in_flight))
    assert (stall.cause, message.endswith("(for the tool invoke_agent)")) == ("api", True)
    assert explain(Situation(tools=(agent,)))[0] == "tool invoke_agent has been running for 30 s"


def test_a_request_and_its_retries_have_one_key() -> None:
    """The key of a stall is the same for a request and its retries, and differs for another
    request."""
    failed = Failed(2, 429, 130.0, None, 7)
    trying = Situation(gateway=True, requests=(request(left=109.0, attempt=3),), failed=failed)
    waiting = Situation(gateway=True, failed=failed)
    assert key_of(trying) == key_of(waiting)
    assert key_of(waiting) != key_of(Situation(gateway=True, failed=Failed(1, 429, 130.0, None, 8)))
    assert needs_look(trying) and needs_look(waiting) and needs_look(Situation(gateway=True))


def bash(pid: int, command: str, born: float = 110.1) -> ProcessInfo:
    return ProcessInfo(pid, 1, born, f"bash -c {command}", 0.0)


def test_two_shells_of_one_answer() -> None:
    """If one answer called two shell tools, the one with a running process is named: a headless run
    reports their ends together."""
    situation = Situation(tools=(shell("sleep 1; echo a", "a"), shell("make all", "b")))
    message, stall = explain(situation, bash(7, "make all", 111.0))
    assert message.startswith("shell tool `make all` has been running for 29 s (pid 7")
    assert (stall.pid, stall.command, stall.since_s) == (7, "make all", 29.0)


def test_the_longest_matching_command_is_named() -> None:
    """If two commands match a process, the longer one is named."""
    situation = Situation(tools=(shell("make", "a"), shell("make all", "b")))
    assert explain(situation, bash(7, "make all"))[1].command == "make all"


def test_shells_that_match_no_process() -> None:
    """If no process matches a command, both tools are named and the stall has no pid.

    A single tool gets the pid.
    """
    situation = Situation(tools=(shell("echo ***", "a"), shell("echo +++", "b")))
    message, stall = explain(situation, bash(7, "echo secret"))
    assert (
        message
        == "shell tool `echo ***` has been running for 30 s, or a command that was called together with it: `echo +++`"
    )
    assert stall.pid is None
    assert explain(Situation(tools=(shell("echo ***"),)), bash(7, "echo secret"))[1].pid == 7


def test_a_shell_without_a_process_is_not_named() -> None:
    """If a shell tool has no process any more, the other tool is named."""
    tools = (shell("true", "a"), tool("mcp_s_poke", None, "b"))
    assert (
        explain(Situation(tools=tools), ProcessInfo(2, 1, 50.0, "python server.py", 0.0))[1].tool
        == "mcp_s_poke"
    )


def test_background_processes_of_a_shell() -> None:
    """If the shell has ended but its tool has not, the message names the background processes that
    the CLI waits for."""
    left, older = ProcessInfo(9, 0, 110.2, "sleep 300", 0.0), ProcessInfo(8, 0, 90.0, "sleep 200", 0.0)
    message, stall = explain(Situation(tools=(shell("sleep 300 &"),)), strays=(older, left))
    assert message.endswith(
        ": its shell has ended, and the CLI waits for its background processes: sleep 300 (pid 9)"
    )
    assert [child.pid for child in stall.children] == [9]


def test_processes_that_are_no_shell_of_the_tool() -> None:
    """A process that is older than the tool, such as an MCP server, is not taken for its shell; nor
    is the shell of another chat."""
    run = Situation(tools=(shell("echo ***"),))
    assert explain(run, ProcessInfo(2, 1, 50.0, "python server.py", 0.0))[1].pid is None
    both = (bash(3, "make"), bash(4, "make"))
    assert explain(Situation(tools=(shell("make"),)), *both, own={4})[1].pid == 4
    assert explain(Situation(tools=(shell("make"),)), *both, own=())[1].pid is None


def test_a_tool_that_waited_for_permission() -> None:
    """The running time of a tool starts when it was allowed, not when it was called."""
    poke = Situation(tools=(tool("mcp_s_poke"),))
    assert explain(poke)[1].since_s == 30
    assert explain(poke, allowed={"t": 135.0})[1].since_s == 5


def test_five_of_many_children_are_listed() -> None:
    """The stall lists five child processes and gives the total number."""
    compilers = [ProcessInfo(10 + n, 7, 120.0, f"cc1 {n}.c", 0.0) for n in range(40)]
    message, stall = explain(Situation(tools=(shell("make"),)), bash(7, "make"), *compilers)
    assert message.endswith("cc1 4.c (pid 14) and 35 more)")
    assert (len(stall.children), stall.child_count) == (5, 40)


def test_a_stopped_cli() -> None:
    """A CLI that a signal stopped is reported as `stopped`, also if a tool or a request is open."""
    stopped = ProcessInfo(1, 0, 10.0, "node gemini", 5.0, stopped=True)
    for situation in (
        Situation(),
        Situation(tools=(shell("make"),)),
        Situation(gateway=True, requests=(request(left=109.0),)),
    ):
        message, stall = explain(situation, cli=stopped)
        assert (stall.cause, stall.pid, level_of(stall)) == ("stopped", 1, "warning")
        assert message.endswith("for 40 s. To continue it, run `kill -CONT 1`")


def test_a_busy_cli_during_an_answer() -> None:
    """If the API has started to answer and the CLI uses CPU, the cause is `busy`.

    Without a first byte the cause is `api`.
    """
    before = ProcessSnapshot(139.0, (ProcessInfo(1, 0, 10.0, "node gemini", 4.1),))
    begun = Situation(gateway=True, requests=(request(left=109.0, first=110.0, last=111.0),))
    assert explain(begun, before=before)[1].cause == "busy"
    assert explain(Situation(gateway=True, requests=(request(left=109.0),)), before=before)[1].cause == "api"


def test_cpu_use_of_a_child() -> None:
    """If only a child such as an MCP server uses CPU, the CLI is reported as idle, with the child's
    CPU and pid."""
    before = ProcessSnapshot(139.0, (CLI, ProcessInfo(2, 1, 50.0, "python server.py", 1.0)))
    message, stall = explain(Situation(), ProcessInfo(2, 1, 50.0, "python server.py", 2.0), before=before)
    assert message.startswith(
        "the CLI (pid 1) has done nothing for 40 s, but its child processes are busy: no connection"
    )
    assert "100 % CPU, child processes: python server.py (pid 2)" in message
    assert stall.cause == "idle"


def test_connections_without_a_gateway() -> None:
    """Without a gateway, an open connection means a wait for the API.

    With a gateway it does not, because the gateway knows its requests.
    """
    message, stall = explain(Situation(tried=2, attempts=10), peers=("192.0.2.7:443",))
    assert message == (
        "waiting for an answer for 40 s: the CLI has an open connection to 192.0.2.7:443 (attempt 3)"
    )
    assert (stall.cause, stall.attempt, stall.of) == ("api", 3, 10)
    assert explain(Situation(tried=10, attempts=10), peers=("192.0.2.7:443",))[1].attempt is None
    assert explain(Situation(gateway=True), peers=("192.0.2.7:443",))[1].cause == "idle"


def test_a_shared_process_is_mentioned() -> None:
    """If other chats share the warm process, the message mentions that."""
    for peers in ((), ("192.0.2.7:443",)):
        assert explain(Situation(), peers=peers, own=())[0].endswith("; other chats share this process")


def test_processes_that_cannot_be_inspected() -> None:
    """If processes cannot be inspected, the message says so.

    Without a snapshot there is no reason yet.
    """
    message, _ = explain(Situation(pid=4), look=ProcessSnapshot(140.0, ()))
    assert message == "no output for 40 s; the CLI (pid 4) cannot be inspected"
    assert explain(Situation(tools=(shell("make"),)), look=ProcessSnapshot(140.0, ()))[1].pid is None
    assert reason_of(StallSnapshot(situation=Situation(pid=4), span=SPAN, clean=str)) is None


@pytest.mark.parametrize(
    ("line", "arguments", "is_found"),
    [
        ("python /srv/db.py --all", ("python", "/srv/db.py", "--all"), True),
        ("/usr/bin/python3 /bin/db --all", ("db", "--all"), True),
        ("python /srv/db.py --all", ("python", "all"), False),
        ("/usr/bin/db", ("db",), True),
        ("node /usr/bin/other db", ("db",), False),
        ("anything", (), False),
    ],
)
def test_the_process_of_an_mcp_server(line: str, arguments: tuple[str, ...], is_found: bool) -> None:
    """An MCP server's process is recognised by its arguments, or by its program if it has none.

    Two matching processes give no pid.
    """
    run = Situation(tools=(tool("mcp_s_poke"),), servers=(("s", arguments),))
    message, stall = explain(run, ProcessInfo(2, 1, 50.0, line, 0.0))
    assert (stall.pid == 2) is is_found
    assert "in the MCP server s" in message
    assert explain(run, ProcessInfo(2, 1, 50.0, line, 0.0), ProcessInfo(3, 1, 50.0, line, 0.0))[1].pid is None


def test_a_request_that_geminids_delays() -> None:
    """A request that geminids delays for the user's rate limit is reported as `held`, not as a
    failure of the API."""
    held = Failed(1, 429, 138.0, 30.0, 7, held="delayed by geminids: the limit is reached")
    message, stall = explain(Situation(gateway=True, failed=held))
    assert (
        message == "a request is delayed by geminids: the limit is reached; the CLI tries again in about 28 s"
    )
    assert (stall.cause, stall.next_s) == ("held", 28.0)
