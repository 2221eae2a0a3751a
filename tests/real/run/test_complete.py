"""Events also report what the CLI's stream-json output leaves out: each item once and in its
turn."""

from __future__ import annotations

from typing import Any

import pytest

from collect_events import run_and_collect, select_events
from geminids import Permissions, Result, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import Turn
from geminids.gateway import ReplyUsage

pytestmark = pytest.mark.real

FAILING = "echo out; echo oops >&2; exit 3"
MODEL = "gemini-2.5-flash"


def _usage(number: int) -> ReplyUsage:
    """Return other token counts for each request, so that a test notices mixed-up requests."""
    return ReplyUsage(input=100 * number, output=10 + number, cached=number, thinking=20 + number)


def _numbers(usage: ReplyUsage) -> tuple[Any, ...]:
    return (usage.input, usage.cached, usage.output, usage.thinking)


def _tokens(events: list[Any], role: str) -> list[tuple[Any, ...]]:
    used = select_events(events, TokensUsed, role=role)
    return [(one.input, one.cached, one.output, one.thinking) for one in used]


def _assert_sums(events: list[Any], result: Result) -> None:
    """Check that the tokens of all requests add up to the totals in the result."""
    assert result.usage is not None
    requests = select_events(events, TokensUsed)
    for name in ("input", "cached", "output", "thinking"):
        assert sum(getattr(one, name) for one in requests) == getattr(result.usage, name), name
    total = sum((one.input or 0) + (one.output or 0) + (one.thinking or 0) for one in requests)
    assert total == result.usage.total


def _find_tool(turn: Turn, name: str) -> ToolFinished:
    (tool,) = [tool for tool in turn.tools if tool.name == name]
    return tool


def test_events_report_what_stream_json_leaves_out(world: Any) -> None:
    """Events report thoughts, full outputs, exit codes, diffs and the tokens of each request, also
    for parallel and denied tools."""
    file = world.cwd / "a.txt"
    file.write_text("alpha\nbeta\n")
    reply = world.gateway.reply
    reply(
        thought=["**Plan**\nread it first", "**More**\nand run it"],
        text=["Let me ", "read. "],
        calls=[
            ("read_file", {"file_path": "a.txt"}),
            ("run_shell_command", {"command": FAILING}),
        ],
        usage=_usage(1),
    )
    reply(
        thought="**Write**\nboth",
        calls=[("write_file", {"file_path": "b.txt", "content": "new\n"})],
        usage=_usage(2),
    )
    change = {
        "file_path": str(file),
        "old_string": "beta",
        "new_string": "gamma",
        "instruction": "Change it.",
    }
    reply(text="Now edit. ", calls=[("replace", change)], usage=_usage(3))
    reply(calls=[("glob", {"pattern": "*.txt"}), ("list_directory", {"dir_path": "."})], usage=_usage(4))
    reply(thought="**End**\nall is done", text=["All ", "done."], usage=_usage(5))
    events, result = run_and_collect(
        "hello", world.options(model=MODEL, approval="yolo", permissions=Permissions(deny_tools=("glob",)))
    )
    assert result.ok, result.failure
    assert result.complete
    assert [(one.subject, one.text, one.turn, one.parent) for one in select_events(events, Thought)] == [
        ("Plan", "read it first", 1, None),
        ("More", "and run it", 1, None),
        ("Write", "both", 2, None),
        ("End", "all is done", 5, None),
    ]
    first, second, third, fourth, fifth = result.turns
    assert [turn.text for turn in result.turns] == ["Let me read. ", "", "Now edit. ", "", "All done."]
    read, shell = _find_tool(first, "read_file"), _find_tool(first, "run_shell_command")
    assert (read.status, read.output, read.exit_code) == ("ok", "alpha\nbeta\n", None)
    assert (shell.output, shell.exit_code) == ("out\noops", 3)
    (created,) = _find_tool(second, "write_file").changes
    assert (created.path, created.kind) == (str(world.cwd / "b.txt"), "created")
    assert created.diff is not None and "\n+new\n" in created.diff
    (edited,) = _find_tool(third, "replace").changes
    assert (edited.path, edited.kind) == (str(file), "edited")
    assert edited.diff is not None and "\n-beta\n+gamma\n" in edited.diff
    assert "Successfully" in (_find_tool(third, "replace").output or "")
    assert _find_tool(fourth, "glob").status == "denied"
    assert _find_tool(fourth, "glob").changes == ()
    assert "a.txt" in (_find_tool(fourth, "list_directory").output or "")
    assert fifth.tools == ()
    assert _tokens(events, "main") == [_numbers(_usage(number)) for number in range(1, 6)]
    assert [len(turn.tokens) for turn in result.turns] == [1] * 5
    assert result.usage is not None
    assert result.usage.requests == 5 == len(world.gateway.requests)
    _assert_sums(events, result)


def _script_agents(world: Any, *names: str) -> None:
    """Script subagents that think, read the file with their name, and answer."""
    for number, name in enumerate(names):
        world.gateway.when(
            f"task of {name}",
            thought=f"**In {name}**\nreading",
            calls=[("read_file", {"file_path": f"{name}.txt"})],
            usage=_usage(10 * number + 11),
        )
        done = {"result": {"response": f"{name} is done"}, "response": f"{name} is done"}
        world.gateway.when(f"task of {name}", calls=[("complete_task", done)], usage=_usage(10 * number + 12))
        (world.cwd / f"{name}.txt").write_text(f"text of {name}\n")


def _agent_call(name: str) -> tuple[str, dict[str, Any]]:
    return ("invoke_agent", {"agent_name": "generalist", "prompt": f"The task of {name}."})


def test_subagents_and_the_router_of_auto(world: Any) -> None:
    """Tools and thoughts of a subagent name its call as `parent`, and each request is reported with
    its role."""
    _script_agents(world, "one", "two", "three")
    when = world.gateway.when
    when("hello", text="Asking. ", calls=[_agent_call("one")], usage=_usage(1))
    when("hello", text="Two more. ", calls=[_agent_call("two"), _agent_call("three")], usage=_usage(2))
    when("hello", text="All done.", usage=_usage(3))
    events, result = run_and_collect("hello", world.options(model="auto", approval="yolo"))
    assert result.ok, result.failure
    assert result.complete
    calls = {
        (start.input or {})["prompt"].split()[-1].rstrip("."): start
        for start in select_events(events, ToolStarted, name="invoke_agent")
    }
    assert {name: call.turn for name, call in calls.items()} == {"one": 1, "two": 2, "three": 2}
    for name, call in calls.items():
        inner = select_events(events, ToolFinished, parent=call.id)
        assert [(tool.name, tool.status, tool.turn) for tool in inner] == [
            ("read_file", "ok", call.turn),
            ("complete_task", "ok", call.turn),
        ]
        assert inner[0].output == f"text of {name}\n"
        assert [
            (one.subject, one.text, one.turn) for one in select_events(events, Thought, parent=call.id)
        ] == [(f"In {name}", "reading", call.turn)]
        (end,) = select_events(events, ToolFinished, id=call.id)
        assert f"{name} is done" in (end.output or "")
        assert end.parent is None
    assert [turn.text for turn in result.turns] == ["Asking. ", "Two more. ", "All done."]
    assert result.answer == "All done."
    assert _tokens(events, "main") == [_numbers(_usage(number)) for number in (1, 2, 3)]
    subagents = [_numbers(_usage(number)) for number in (11, 12, 21, 22, 31, 32)]
    assert sorted(_tokens(events, "subagent")) == sorted(subagents)
    router_requests = [one for one in world.gateway.requests if one.method == "generate"]
    assert router_requests, "the CLI sent no router request"
    assert len(select_events(events, TokensUsed, role="router")) == len(router_requests)
    _assert_sums(events, result)
    assert result.usage is not None
    assert result.usage.requests == len(select_events(events, TokensUsed)) == len(world.gateway.requests)


def test_every_request_of_a_fixed_model_is_known(world: Any) -> None:
    """With a fixed model the CLI sends no router request, and events report every request, also
    those of a subagent."""
    _script_agents(world, "one")
    world.gateway.when("hello", calls=[_agent_call("one")], usage=_usage(1))
    world.gateway.when("hello", text="Answered.", usage=_usage(2))
    events, result = run_and_collect("hello", world.options(model=MODEL, approval="yolo"))
    assert result.complete
    assert {one.role for one in select_events(events, TokensUsed)} == {"main", "subagent"}
    assert len(select_events(events, TokensUsed)) == len(world.gateway.requests) == 4
    assert result.usage is not None
    assert result.usage.requests == 4
    _assert_sums(events, result)
