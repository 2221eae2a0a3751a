"""What is said of a moment: the cause, the words and the fields."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import PermissionAsked, Stall, ToolStarted
from geminids.gateway.messages import InFlightRequest
from geminids.run.stall.explain import level_of, reason_of
from geminids.run.stall.processes import ProcessInfo, ProcessSnapshot
from geminids.run.stall.snapshot import Failed, Situation, Span, StallSnapshot, key_of, needs_look

WHERE: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}
SPAN = Span(silent=100.0, now=140.0, wall=140.0)


CLI = ProcessInfo(1, 0, 10.0, "node gemini", 5.0)


def words(situation: Situation, *below: ProcessInfo, **fields: Any) -> tuple[str, Stall]:
    """What is said; with processes below the CLI, or with fields of the moment, after a look at them."""
    if (below or fields) and "look" not in fields:
        seen = (fields.pop("cli", CLI), *below)
        fields["look"] = ProcessSnapshot(140.0, seen, fields.pop("peers", ()), fields.pop("strays", ()))
    found = reason_of(StallSnapshot(situation=situation, span=SPAN, clean=str, **fields))
    assert found is not None
    return found.words, found.stall


def request(**fields: Any) -> InFlightRequest:
    made = InFlightRequest(
        3, "gemini-x", "main", is_paid=True, attempt=fields.pop("attempt", 1), body=7, came=105.0
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def tool(name: str, command: str | None = None, call_id: str = "t") -> ToolStarted:
    given = None if command is None else {"command": command}
    return ToolStarted(
        **{**WHERE, "at": 110_000}, id=call_id, name=name, kind="other", title=name, input=given
    )


def shell(command: str, call_id: str = "t") -> ToolStarted:
    return tool("run_shell_command", command, call_id)


@pytest.mark.parametrize(
    ("under_way", "said", "cause"),
    [
        (
            request(left=109.0),
            "waiting for the API: request 3 to gemini-x was sent 31 s ago, no byte yet",
            "api",
        ),
        (
            request(left=109.0, first=110.0, last=128.0),
            "waiting for the API: request 3 to gemini-x was sent 31 s ago, the last byte came 12 s ago",
            "api",
        ),
        (
            request(left=109.0, attempt=2),
            "waiting for the API: request 3 to gemini-x (attempt 2) was sent 31 s ago, no byte yet",
            "api",
        ),
        (
            request(held_until=160.0, held_why="the limit is 10 requests a minute"),
            "request 3 to gemini-x is held back for 20 s more: the limit is 10 requests a minute",
            "held",
        ),
    ],
)
def test_requests_that_the_gateway_sees(under_way: InFlightRequest, said: str, cause: str) -> None:
    """Sent when, heard when, or held back for how long."""
    assert words(Situation(gateway=True, requests=(under_way,)))[0] == said
    assert words(Situation(gateway=True, requests=(under_way,)))[1].cause == cause


def test_what_comes_first() -> None:
    """A question before everything, a shell before the API, the API before a tool that asks it."""
    asked = PermissionAsked(
        **WHERE, id="p", tool="run_shell_command", kind="execute", title="t", command="npm test"
    )
    under_way = (request(left=109.0),)
    agent, bash = tool("invoke_agent"), tool("run_shell_command")
    assert words(Situation(permission=(asked, 110.0), tools=(bash,), requests=under_way))[0] == (
        "waiting 30 s for permission: run_shell_command `npm test`"
    )
    assert words(Situation(tools=(agent, bash), requests=under_way))[1].cause == "tool"
    said, stall = words(Situation(tools=(agent,), requests=under_way))
    assert (stall.cause, said.endswith("(for invoke_agent)")) == ("api", True)
    assert words(Situation(tools=(agent,)))[0] == "tool invoke_agent has been running for 30 s"


def test_a_request_and_its_retries_are_one_reason() -> None:
    """So that their notices become rarer; another request is another reason, and is told after its own N."""
    failed = Failed(2, 429, 130.0, None, 7)
    trying = Situation(gateway=True, requests=(request(left=109.0, attempt=3),), failed=failed)
    waiting = Situation(gateway=True, failed=failed)
    assert key_of(trying) == key_of(waiting)
    assert key_of(waiting) != key_of(Situation(gateway=True, failed=Failed(1, 429, 130.0, None, 8)))
    assert needs_look(trying) and needs_look(waiting) and needs_look(Situation(gateway=True))


def bash(pid: int, command: str, born: float = 110.1) -> ProcessInfo:
    return ProcessInfo(pid, 1, born, f"bash -c {command}", 0.0)


def test_two_shells_of_one_answer() -> None:
    """A headless run tells their ends together: the one that has a process is the one that runs."""
    two = Situation(tools=(shell("sleep 1; echo a", "a"), shell("make all", "b")))
    said, stall = words(two, bash(7, "make all", 111.0))
    assert said.startswith("shell tool `make all` has been running for 29 s (pid 7")
    assert (stall.pid, stall.command, stall.since_s) == (7, "make all", 29.0)


def test_a_command_that_is_a_part_of_another() -> None:
    """The longest that fits is the one that runs."""
    two = Situation(tools=(shell("make", "a"), shell("make all", "b")))
    assert words(two, bash(7, "make all"))[1].command == "make all"


def test_shells_that_cannot_be_told_apart() -> None:
    """Where none has a process of its words, no pid is made up, and both are named."""
    two = Situation(tools=(shell("echo ***", "a"), shell("echo +++", "b")))
    said, stall = words(two, bash(7, "echo secret"))
    assert (
        said
        == "shell tool `echo ***` has been running for 30 s, or a tool that was called with it: `echo +++`"
    )
    assert stall.pid is None
    assert words(Situation(tools=(shell("echo ***"),)), bash(7, "echo secret"))[1].pid == 7


def test_a_shell_that_is_over_beside_another_tool() -> None:
    """The tool that may still run is told, not the one that surely does not."""
    tools = (shell("true", "a"), tool("mcp_s_poke", None, "b"))
    assert (
        words(Situation(tools=tools), ProcessInfo(2, 1, 50.0, "python server.py", 0.0))[1].tool
        == "mcp_s_poke"
    )


def test_what_a_shell_has_left() -> None:
    """A shell that is gone while its tool is not: the CLI waits for those whom it has left; not for older ones."""
    left, older = ProcessInfo(9, 0, 110.2, "sleep 300", 0.0), ProcessInfo(8, 0, 90.0, "sleep 200", 0.0)
    said, stall = words(Situation(tools=(shell("sleep 300 &"),)), strays=(older, left))
    assert said.endswith(
        ": its shell has ended, and the CLI waits for its background processes: sleep 300 (pid 9)"
    )
    assert [one.pid for one in stall.children] == [9]


def test_whose_shell_it_is() -> None:
    """An MCP server, older than the tool, is never taken for it; nor is the shell of another chat."""
    run = Situation(tools=(shell("echo ***"),))
    assert words(run, ProcessInfo(2, 1, 50.0, "python server.py", 0.0))[1].pid is None
    both = (bash(3, "make"), bash(4, "make"))
    assert words(Situation(tools=(shell("make"),)), *both, own={4})[1].pid == 4
    assert words(Situation(tools=(shell("make"),)), *both, own=())[1].pid is None


def test_a_tool_that_has_waited_for_a_yes() -> None:
    """It runs since it was allowed, not since it was asked for."""
    poke = Situation(tools=(tool("mcp_s_poke"),))
    assert words(poke)[1].since_s == 30
    assert words(poke, allowed={"t": 135.0})[1].since_s == 5


def test_a_herd() -> None:
    """Five of them are named, and all are counted."""
    herd = [ProcessInfo(10 + n, 7, 120.0, f"cc1 {n}.c", 0.0) for n in range(40)]
    said, stall = words(Situation(tools=(shell("make"),)), bash(7, "make"), *herd)
    assert said.endswith("cc1 4.c (pid 14) and 35 more)")
    assert (len(stall.children), stall.child_count) == (5, 40)


def test_a_cli_that_a_signal_has_stopped() -> None:
    """That is said before anything else that it may wait for, but not before a question."""
    stopped = ProcessInfo(1, 0, 10.0, "node gemini", 5.0, stopped=True)
    for situation in (
        Situation(),
        Situation(tools=(shell("make"),)),
        Situation(gateway=True, requests=(request(left=109.0),)),
    ):
        said, stall = words(situation, cli=stopped)
        assert (stall.cause, stall.pid, level_of(stall)) == ("stopped", 1, "warning")
        assert said.endswith("for 40 s: continue it with `kill -CONT 1`")


def test_an_answer_that_is_not_taken() -> None:
    """The API has begun to answer, and the CLI is the one that is busy; with no byte yet it is the API."""
    before = ProcessSnapshot(139.0, (ProcessInfo(1, 0, 10.0, "node gemini", 4.1),))
    begun = Situation(gateway=True, requests=(request(left=109.0, first=110.0, last=111.0),))
    assert words(begun, before=before)[1].cause == "busy"
    assert words(Situation(gateway=True, requests=(request(left=109.0),)), before=before)[1].cause == "api"


def test_work_of_a_child_is_no_work_of_the_cli() -> None:
    """An MCP server that burns a core while the CLI does nothing: said as such, and told with its pid."""
    before = ProcessSnapshot(139.0, (CLI, ProcessInfo(2, 1, 50.0, "python server.py", 1.0)))
    said, stall = words(Situation(), ProcessInfo(2, 1, 50.0, "python server.py", 2.0), before=before)
    assert said.startswith(
        "the CLI (pid 1) has done nothing, while its children work, for 40 s: no connection"
    )
    assert "100 % CPU, children: python server.py (pid 2)" in said
    assert stall.cause == "idle"


def test_connections_without_a_gateway() -> None:
    """They are all that shows of a request; with a gateway, which sees requests, they say nothing."""
    said, stall = words(Situation(tried=2, attempts=10), peers=("192.0.2.7:443",))
    assert said == (
        "waiting for an answer for 40 s: the CLI has a connection to 192.0.2.7:443 open (attempt 3)"
    )
    assert (stall.cause, stall.attempt, stall.of) == ("api", 3, 10)
    assert words(Situation(tried=10, attempts=10), peers=("192.0.2.7:443",))[1].attempt is None
    assert words(Situation(gateway=True), peers=("192.0.2.7:443",))[1].cause == "idle"


def test_a_process_that_other_chats_share() -> None:
    """What may be theirs is said to be."""
    for peers in ((), ("192.0.2.7:443",)):
        assert words(Situation(), peers=peers, own=())[0].endswith("; other chats share this process")


def test_where_nobody_may_look() -> None:
    """That is said, and nothing is made up; of a process that is gone there is nothing to say."""
    said, _ = words(Situation(pid=4), look=ProcessSnapshot(140.0, ()))
    assert said == "no output for 40 s; the CLI (pid 4) cannot be inspected"
    assert words(Situation(tools=(shell("make"),)), look=ProcessSnapshot(140.0, ()))[1].pid is None
    assert reason_of(StallSnapshot(situation=Situation(pid=4), span=SPAN, clean=str)) is None


@pytest.mark.parametrize(
    ("line", "words_", "found"),
    [
        ("python /srv/db.py --all", ("python", "/srv/db.py", "--all"), True),
        ("/usr/bin/python3 /bin/db --all", ("db", "--all"), True),
        ("python /srv/db.py --all", ("python", "all"), False),
        ("/usr/bin/db", ("db",), True),
        ("node /usr/bin/other db", ("db",), False),
        ("anything", (), False),
    ],
)
def test_the_process_of_an_mcp_server(line: str, words_: tuple[str, ...], found: bool) -> None:
    """By all of its arguments, or by its program where it has none."""
    run = Situation(tools=(tool("mcp_s_poke"),), servers=(("s", words_),))
    said, stall = words(run, ProcessInfo(2, 1, 50.0, line, 0.0))
    assert (stall.pid == 2) is found
    assert "in the MCP server s" in said
    assert words(run, ProcessInfo(2, 1, 50.0, line, 0.0), ProcessInfo(3, 1, 50.0, line, 0.0))[1].pid is None


def test_a_request_that_we_have_not_let_through() -> None:
    """A rate that the user has set is no failure of the API."""
    held = Failed(1, 429, 138.0, 30.0, 7, held="delayed by geminids: the limit is reached")
    said, stall = words(Situation(gateway=True, failed=held))
    assert said == "a request is delayed by geminids: the limit is reached; the CLI tries again in about 28 s"
    assert (stall.cause, stall.next_s) == ("held", 28.0)
