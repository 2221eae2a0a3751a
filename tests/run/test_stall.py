"""The stall watch with a CLI that does as it is told: when it speaks, when it does not, and what it says."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import geminids
from geminids import Notice, PermissionAsked, Stall, ToolStarted
from geminids.events.model import encode_event
from geminids.gateway.under_way import UnderWay
from geminids.run.stall_processes import Look, Seen, cpu_percent, look_at, shell_of
from geminids.run.stall_reasons import reason_of
from geminids.run.stall_situation import Failed, Situation, Span, key_of, needs_look

TOOL = "line('tool_use', tool_name='run_shell_command', tool_id='t', parameters={'command': %r})"


def stalls(events: list[Any]) -> list[Any]:
    assert not [one for one in events if getattr(one, "code", None) == "stall_watch"], "the watch has failed"
    return [one for one in events if isinstance(one, Notice) and one.code == "stall"]


def watched(options: Any) -> tuple[list[Any], list[float]]:
    """The events, and when each stall was told, from the first event on."""
    events, times, began = [], [], time.monotonic()
    for event in geminids.stream_sync("hi", options):
        events.append(event)
        if isinstance(event, Notice) and event.code == "stall":
            times.append(time.monotonic() - began)
    return events, times


def test_a_cli_that_does_nothing(stand_in: Any) -> None:
    """No connection and no CPU; told after N, then after 2 N more: the intervals grow."""
    events, times = watched(stand_in("out(INIT)\ntime.sleep(4.2)\nout(DONE)", stall_after=1))
    first, second = stalls(events)
    assert (first.stall.cause, second.stall.cause) == ("idle", "idle")
    (started,) = (one for one in events if isinstance(one, geminids.Started))
    assert first.stall.pid == started.pid
    assert "no connection is open, no CPU" in first.message
    assert 1.0 <= times[0] < 3.0
    assert 1.6 < times[1] - times[0] < 3.0


def test_a_cli_that_works(stand_in: Any) -> None:
    """It uses a core, and is not said to hang."""
    events, _ = watched(
        stand_in(
            "out(INIT)\nuntil = time.time() + 3\nwhile time.time() < until: pass\nout(DONE)", stall_after=1
        )
    )
    assert {one.stall.cause for one in stalls(events)} == {"busy"}
    assert stalls(events)[0].stall.cpu > 10


@pytest.mark.parametrize("streams", [True, False])
def test_a_stream_is_no_stall(stand_in: Any, streams: bool) -> None:
    """Pieces that come more often than N are no silence; the same time without them is."""
    piece = "out(say('a'))" if streams else "pass"
    body = f"out(INIT)\nfor _ in range(20):\n    time.sleep(0.15)\n    {piece}\nout(DONE)"
    events, _ = watched(stand_in(body, stall_after=1))
    assert bool(stalls(events)) is not streams


def test_noise_on_stderr_is_silence(stand_in: Any) -> None:
    """What only chatters on stderr has not moved the run forward."""
    body = "out(INIT)\nfor _ in range(20):\n    time.sleep(0.1)\n    out('noise\\n', 2)\nout(DONE)"
    events, _ = watched(stand_in(body, stall_after=1))
    assert len(stalls(events)) == 1


def test_never(stand_in: Any) -> None:
    """`stall_after=None` gives no notice; an idle time-out says all the same what it waited for."""
    events, _ = watched(stand_in("out(INIT)\ntime.sleep(60)", stall_after=None, idle_timeout=2))
    assert stalls(events) == []
    assert events[-1].outcome == "timed_out"
    assert events[-1].reason.startswith("timed out: 2 s of silence in which no tool ran; the CLI (pid ")
    assert "no connection is open, no CPU" in events[-1].reason


def test_other_deadlines_are_what_they_were(stand_in: Any) -> None:
    """A limit for the whole run has nothing to do with silence."""
    events, _ = watched(stand_in("out(INIT)\ntime.sleep(60)", stall_after=1, timeout=2.5))
    assert (events[-1].outcome, events[-1].reason) == ("timed_out", "timed out after 2.5 s")


def test_a_shell_with_children(stand_in: Any) -> None:
    """The command, its pid, its children, and that it does nothing; secrets in command lines are masked."""
    secret = "AIzaSyA-not-a-real-key-but-long-enough-000"
    command = f"sleep 300; echo {secret}"
    body = (
        f"out(INIT + {TOOL % command})\n"
        f"child = subprocess.Popen(['bash', '-c', {command!r}])\ntime.sleep(3)\n"
        "subprocess.run(['pkill', '-P', str(child.pid)])\nchild.kill()\nchild.wait()\nout(DONE)"
    )
    events, _ = watched(stand_in(body, stall_after=1, env={"GEMINI_API_KEY": secret}))
    stall = stalls(events)[0].stall
    assert (stall.cause, stall.tool, stall.waits_on) == ("tool", "run_shell_command", None)
    assert stall.cpu is not None and stall.cpu < 10
    assert [one.command for one in stall.children] == ["sleep 300"]
    assert f"pid {stall.pid}, no CPU, children: sleep 300 (pid " in stalls(events)[0].message
    assert not any(secret.encode() in encode_event(one) for one in events)


@pytest.mark.skipif(not os.path.exists("/proc/self/syscall"), reason="only Linux can tell")
def test_a_shell_that_waits_on_its_stdin(stand_in: Any) -> None:
    """`cat` without a file reads what nobody writes."""
    body = (
        f"out(INIT + {TOOL % 'cat'})\nchild = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "time.sleep(2.5)\nchild.communicate()\nout(DONE)"
    )
    stall = stalls(watched(stand_in(body, stall_after=1))[0])[0].stall
    assert (stall.cause, stall.command, stall.waits_on) == ("tool", "cat", "stdin")


def test_processes_that_come_and_go(stand_in: Any) -> None:
    """A tool that starts and ends programs all the time, while it is looked at, breaks nothing."""
    body = (
        f"out(INIT + {TOOL % 'make'})\nuntil = time.time() + 3\n"
        "while time.time() < until: subprocess.run(['true'])\nout(DONE)"
    )
    events, _ = watched(stand_in(body, stall_after=0.2))
    assert {one.stall.cause for one in stalls(events)} == {"tool"}
    assert events[-1].outcome == "success"


def test_a_retry_that_stderr_tells(stand_in: Any) -> None:
    """Which attempt, of how many, after what, and when the next one comes; over when the CLI speaks again."""
    body = (
        "out(INIT)\nout('Attempt 3 failed: Quota. Retrying after 12000ms...\\n', 2)\ntime.sleep(1.7)\n"
        "out(say('a'))\ntime.sleep(1.7)\nout(DONE)"
    )
    events, _ = watched(stand_in(body, stall_after=1, model="flash"))
    first, second = stalls(events)
    assert first.message == "API retry 3 of 10 after HTTP 429, next in about 11 s"
    stall = first.stall
    assert (stall.cause, stall.attempt, stall.of, stall.http_status) == ("retry", 3, 10, 429)
    assert 10 < stall.next_s < 12
    assert second.stall.cause == "idle"


# What is said of a situation.

WHERE: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}
SPAN = Span(silent=100.0, now=140.0, wall=140.0)


def words(situation: Situation) -> tuple[str, Stall]:
    found = reason_of(situation, SPAN, None, None, str)
    assert found is not None
    return found.words, found.stall


def request(**fields: Any) -> UnderWay:
    made = UnderWay(3, "gemini-x", attempt=fields.pop("attempt", 1), body=7, came=105.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def tool(name: str) -> ToolStarted:
    return ToolStarted(**{**WHERE, "at": 110_000}, id="t", name=name, kind="other", title=name, input=None)


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
            request(held_until=160.0, held_why="10 requests a minute may leave"),
            "request 3 to gemini-x is held back for 20 s more: 10 requests a minute may leave",
            "held",
        ),
    ],
)
def test_requests_that_the_gateway_sees(under_way: UnderWay, said: str, cause: str) -> None:
    """Sent when, heard when, or held back for how long."""
    assert words(Situation(gateway=True, requests=(under_way,)))[0] == said
    assert words(Situation(gateway=True, requests=(under_way,)))[1].cause == cause


def test_what_comes_first() -> None:
    """A question before everything, a shell before the API, the API before a tool that asks it."""
    asked = PermissionAsked(
        **WHERE, id="p", tool="run_shell_command", kind="execute", title="t", command="npm test"
    )
    under_way = (request(left=109.0),)
    agent, shell = tool("invoke_agent"), tool("run_shell_command")
    assert words(Situation(permission=(asked, 110.0), tools=(shell,), requests=under_way))[0] == (
        "waiting 30 s for permission: run_shell_command `npm test`"
    )
    assert words(Situation(tools=(agent, shell), requests=under_way))[1].cause == "tool"
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
    assert not needs_look(trying) and not needs_look(waiting)
    assert needs_look(Situation(gateway=True)) and needs_look(Situation(failed=failed))


@pytest.mark.parametrize(
    ("attempt", "wait", "left"), [(1, None, 5), (2, None, 10), (9, None, 30), (1, 12, 12)]
)
def test_when_the_next_attempt_comes(attempt: int, wait: float | None, left: float) -> None:
    """What the CLI or the API has named, and else the CLI's own back-off."""
    assert Failed(attempt, 500, 140.0, wait).next_in(140.0) == left


def test_a_look_at_what_is_gone() -> None:
    """Nothing is raised for a process that is not there."""
    assert look_at(2**22 + 1) is None
    assert cpu_percent(None, None, [1]) is None


def test_whose_shell_it_is() -> None:
    """By its words, also among others of the same age; an MCP server, older than the tool, is never taken for it."""
    server, one, two = (
        Seen(pid, 1, born, words, 0.0)
        for pid, born, words in (
            (2, 50.0, "python server.py"),
            (3, 100.0, "bash -c npm test"),
            (4, 100.0, "bash -c make"),
        )
    )
    look = Look(0.0, (Seen(1, 0, 10.0, "node gemini", 0.0), server, one, two))
    assert shell_of(look, "make", 100.0) == two
    assert shell_of(look, None, 100.0) == one
    assert shell_of(look, None, 200.0) is None
