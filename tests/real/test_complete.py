"""The complete stream: what stream-json leaves out is in the events, told once, in its turn, while the run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from complete import of, told
from geminids import Permissions, Result, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import Turn
from geminids.gateway import Usage

pytestmark = pytest.mark.real

FAILING = "echo out; echo oops >&2; exit 3"
MODEL = "gemini-2.5-flash"


def _usage(number: int) -> Usage:
    """Each request has its own numbers, so that none can stand for another."""
    return Usage(input=100 * number, output=10 + number, cached=number, thinking=20 + number)


def _numbers(usage: Usage) -> tuple[Any, ...]:
    return (usage.input, usage.cached, usage.output, usage.thinking)


def _tokens(events: list[Any], role: str) -> list[tuple[Any, ...]]:
    found = of(events, TokensUsed, role=role)
    return [(one.input, one.cached, one.output, one.thinking) for one in found]


def _adds_up(events: list[Any], result: Result) -> None:
    """The requests are the CLI's own sums."""
    assert result.usage is not None
    requests = of(events, TokensUsed)
    for name in ("input", "cached", "output", "thinking"):
        assert sum(getattr(one, name) for one in requests) == getattr(result.usage, name), name
    total = sum((one.input or 0) + (one.output or 0) + (one.thinking or 0) for one in requests)
    assert total == result.usage.total


def _tool(turn: Turn, name: str) -> ToolFinished:
    (tool,) = [tool for tool in turn.tools if tool.name == name]
    return tool


def test_what_the_stream_leaves_out(world: Any) -> None:
    """Thoughts, true outputs, the exit code, diffs, tokens by request; two tools at once, one that is denied."""
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
    events, result = told(
        "hello", world.options(model=MODEL, approval="yolo", permissions=Permissions(deny_tools=("glob",)))
    )
    assert result.ok, result.failure
    assert result.complete
    assert [(one.subject, one.text, one.turn, one.parent) for one in of(events, Thought)] == [
        ("Plan", "read it first", 1, None),
        ("More", "and run it", 1, None),
        ("Write", "both", 2, None),
        ("End", "all is done", 5, None),
    ]
    first, second, third, fourth, fifth = result.turns
    assert [turn.text for turn in result.turns] == ["Let me read. ", "", "Now edit. ", "", "All done."]
    read, shell = _tool(first, "read_file"), _tool(first, "run_shell_command")
    assert (read.status, read.output, read.exit_code) == ("ok", "alpha\nbeta\n", None)
    assert (shell.output, shell.exit_code) == ("out\noops", 3)
    (created,) = _tool(second, "write_file").changes
    assert (created.path, created.kind) == (str(world.cwd / "b.txt"), "created")
    assert created.diff is not None and "\n+new\n" in created.diff
    (edited,) = _tool(third, "replace").changes
    assert (edited.path, edited.kind) == (str(file), "edited")
    assert edited.diff is not None and "\n-beta\n+gamma\n" in edited.diff
    assert "Successfully" in (_tool(third, "replace").output or "")
    assert _tool(fourth, "glob").status == "denied"
    assert _tool(fourth, "glob").changes == ()
    assert "a.txt" in (_tool(fourth, "list_directory").output or "")
    assert fifth.tools == ()
    assert _tokens(events, "main") == [_numbers(_usage(number)) for number in range(1, 6)]
    assert [len(turn.tokens) for turn in result.turns] == [1] * 5
    assert result.usage is not None
    assert result.usage.requests == 5 == len(world.gateway.requests)
    _adds_up(events, result)


def _agents(world: Any, *names: str) -> None:
    """Subagents that think, read the file of their name, and give an answer."""
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


def _invoke(name: str) -> tuple[str, dict[str, Any]]:
    return ("invoke_agent", {"agent_name": "generalist", "prompt": f"The task of {name}."})


def test_subagents_and_the_router_of_auto(world: Any) -> None:
    """One by itself, then two at once: tools and thoughts have the call that they belong to, requests their role."""
    _agents(world, "one", "two", "three")
    when = world.gateway.when
    when("hello", text="Asking. ", calls=[_invoke("one")], usage=_usage(1))
    when("hello", text="Two more. ", calls=[_invoke("two"), _invoke("three")], usage=_usage(2))
    when("hello", text="All said.", usage=_usage(3))
    events, result = told("hello", world.options(model="auto", approval="yolo"))
    assert result.ok, result.failure
    assert result.complete
    calls = {
        (start.input or {})["prompt"].split()[-1].rstrip("."): start
        for start in of(events, ToolStarted, name="invoke_agent")
    }
    assert {name: call.turn for name, call in calls.items()} == {"one": 1, "two": 2, "three": 2}
    for name, call in calls.items():
        inner = of(events, ToolFinished, parent=call.id)
        assert [(tool.name, tool.status, tool.turn) for tool in inner] == [
            ("read_file", "ok", call.turn),
            ("complete_task", "ok", call.turn),
        ]
        assert inner[0].output == f"text of {name}\n"
        assert [(one.subject, one.text, one.turn) for one in of(events, Thought, parent=call.id)] == [
            (f"In {name}", "reading", call.turn)
        ]
        (end,) = of(events, ToolFinished, id=call.id)
        assert f"{name} is done" in (end.output or "")
        assert end.parent is None
    assert [turn.text for turn in result.turns] == ["Asking. ", "Two more. ", "All said."]
    assert result.answer == "All said."
    assert _tokens(events, "main") == [_numbers(_usage(number)) for number in (1, 2, 3)]
    subagents = [_numbers(_usage(number)) for number in (11, 12, 21, 22, 31, 32)]
    assert sorted(_tokens(events, "subagent")) == sorted(subagents)
    others = [one for one in world.gateway.requests if one.method == "generate"]
    assert others, "the router was asked"
    assert len(of(events, TokensUsed, role="router")) == len(others)
    _adds_up(events, result)
    assert result.usage is not None
    assert result.usage.requests == len(of(events, TokensUsed)) == len(world.gateway.requests)


def test_a_fixed_model_has_no_rest(world: Any) -> None:
    """Without a router and other errands, every request is known: also those of a subagent with another model."""
    _agents(world, "one")
    world.gateway.when("hello", calls=[_invoke("one")], usage=_usage(1))
    world.gateway.when("hello", text="Said.", usage=_usage(2))
    events, result = told("hello", world.options(model=MODEL, approval="yolo"))
    assert result.complete
    assert {one.role for one in of(events, TokensUsed)} == {"main", "subagent"}
    assert len(of(events, TokensUsed)) == len(world.gateway.requests) == 4
    assert result.usage is not None
    assert result.usage.requests == 4
    _adds_up(events, result)
