"""The complete stream where it is hard: on time, without its journal, stopped in the middle, with secrets in it."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import geminids
from complete import lawful, of, told
from geminids import Notice, Text, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import encode_event

pytestmark = pytest.mark.real

AGENT = ("invoke_agent", {"agent_name": "generalist", "prompt": "The task of one."})


class Watch:
    """When each text was first seen in the session files of a home, looked at every two milliseconds."""

    def __init__(self, home: Path, *texts: bytes) -> None:
        self._home = home
        self._texts = texts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: dict[bytes, float] = {}

    def _look(self) -> None:
        while not self._over.wait(0.002):
            for file in (self._home / ".gemini" / "tmp").glob("*/chats/**/*.jsonl"):
                data = file.read_bytes()
                for text in self._texts:
                    if text in data:
                        self.seen.setdefault(text, time.monotonic())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_events_are_on_time(world: Any) -> None:
    """Each output, thought and subagent's tool at most 200 ms after a journal has it; and text flows meanwhile."""
    gateway = world.gateway
    (world.cwd / "one.txt").write_text("text-of-one\n")
    gateway.when(
        "hello",
        thought="**Slow**\nthought-of-main",
        calls=[("run_shell_command", {"command": "sleep 0.4; printf 'out-of-%s' shell"})],
    )
    gateway.when("hello", calls=[AGENT])
    gateway.when(
        "task of one", thought="**In**\nthought-of-one", calls=[("read_file", {"file_path": "one.txt"})]
    )
    # The agent goes on for a while after its tool has ended: that must not wait for the agent.
    gateway.when(
        "task of one", calls=[("complete_task", {"result": {"response": "x"}, "response": "x"})], delay=0.6
    )
    gateway.when("hello", text=["slow ", "and ", "slower"], pause=0.3)
    came: dict[bytes, float] = {}
    texts: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, Text):
            texts.append(time.monotonic())
        told = event.text if isinstance(event, Thought) else getattr(event, "output", None)
        if told and isinstance(event, (Thought, ToolFinished)):
            came[told.strip().encode()] = time.monotonic()

    wanted = (b"out-of-shell", b"thought-of-main", b"text-of-one", b"thought-of-one")
    with Watch(world.home, *wanted) as watch:
        _, result = told("hello", world.options(approval="yolo"), on_event=on_event)
    assert result.complete
    late = {text: came[text] - watch.seen[text] for text in wanted}
    print("late by, in ms:", {text.decode(): round(1000 * by) for text, by in late.items()})
    assert max(late.values()) < 0.2, late
    assert len(texts) == 3
    assert min(after - before for before, after in itertools.pairwise(texts)) > 0.15, texts


_TAMPERED = {
    "deleted": "rm $HOME/.gemini/tmp/*/chats/*.jsonl",
    "truncated": "for f in $HOME/.gemini/tmp/*/chats/*.jsonl; do : > $f; done",
    "replaced": "for f in $HOME/.gemini/tmp/*/chats/*.jsonl; do echo '{\"id\":1}' > x; mv x $f; done",
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how == "deleted" else pytest.mark.deep) for how in _TAMPERED]
)
def test_a_journal_that_is_lost_does_not_cost_the_run(world: Any, how: str) -> None:
    """The run goes on with what the stream says, and does not say that it was complete."""
    world.gateway.reply(
        thought="**First**\nknown", calls=[("run_shell_command", {"command": f"sleep 0.3; {_TAMPERED[how]}"})]
    )
    world.gateway.reply(calls=[("run_shell_command", {"command": "echo still here"})])
    world.gateway.reply(text="done")
    events, result = told("hello", world.options(approval="yolo"))
    assert (result.outcome, result.answer, result.complete) == ("success", "done", False)
    assert [one.text for one in of(events, Thought)] == ["known"]
    assert len(of(events, ToolFinished, status="ok")) == 2
    assert [one.message for one in of(events, Notice, code="journal")] == []


def _stop_when(world: Any, name: str) -> Any:
    """Ask for the end once that file is there and the thought before it was told."""
    asked: list[bool] = []

    def on_event(run: Any, event: Any) -> None:
        if isinstance(event, ToolStarted) and not asked:
            asked.append(True)
            threading.Thread(target=_stop_soon, args=(run, world.cwd / name)).start()

    return on_event


def _stop_soon(run: Any, file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)  # longer than any look at the journal takes to come
    run.stop()


@pytest.mark.parametrize("way", ["stopped", pytest.param("timed out", marks=pytest.mark.deep)])
def test_what_was_known_is_told_where_a_run_is_stopped(world: Any, way: str) -> None:
    """Open tools are `cancelled`; thoughts, tokens, and the tool that had ended are as the journal has them."""
    (world.cwd / "a.txt").write_text("alpha\n")
    world.gateway.reply(thought="**One**\nread", calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.reply(
        thought="**Two**\nrun", calls=[("run_shell_command", {"command": "touch here; sleep 300"})]
    )
    fields: dict[str, Any] = {"approval": "yolo", "grace": 1.0}
    if way == "timed out":
        events, result = told("hello", world.options(timeout=6, **fields))
    else:
        events, result = told("hello", world.options(**fields), on_event=_stop_when(world, "here"))
    assert result.outcome == ("interrupted" if way == "stopped" else "timed_out")
    assert [(one.text, one.turn) for one in of(events, Thought)] == [("read", 1), ("run", 2)]
    read, shell = of(events, ToolFinished)
    assert (read.status, read.output) == ("ok", "alpha\n")
    assert (shell.status, shell.exit_code) == ("cancelled", None)
    assert len(of(events, TokensUsed)) == 2
    assert not result.complete


@pytest.mark.deep
def test_a_subagent_that_is_stopped(world: Any) -> None:
    """What it has done so far is told with its call, whose end is `cancelled`."""
    (world.cwd / "one.txt").write_text("text of one\n")
    world.gateway.when("hello", calls=[AGENT])
    world.gateway.when("task of one", calls=[("read_file", {"file_path": "one.txt"})])
    world.gateway.when("task of one", calls=[("run_shell_command", {"command": "touch here; sleep 300"})])
    options = world.options(approval="yolo", grace=1.0)
    events, result = told("hello", options, on_event=_stop_when(world, "here"))
    assert result.outcome == "interrupted"
    (call,) = of(events, ToolStarted, name="invoke_agent")
    assert of(events, ToolFinished, id=call.id)[0].status == "cancelled"
    inner = of(events, ToolFinished, parent=call.id)
    assert ("read_file", "text of one\n") in [(tool.name, tool.output) for tool in inner]


SECRET = "tok_live_7f3Qx9LmZ2"


def test_no_secret_comes_in_by_the_journal(world: Any) -> None:
    """Masked in true outputs, thoughts, diffs, and a subagent's arguments and outputs."""
    (world.cwd / "keys.txt").write_text(f"the token is {SECRET}\n")
    when = world.gateway.when
    when(
        "hello",
        thought=f"**About {SECRET}**\nis it {SECRET}?",
        calls=[
            ("read_file", {"file_path": "keys.txt"}),
            ("write_file", {"file_path": "copy.txt", "content": f"it is {SECRET}\n"}),
            AGENT,
        ],
    )
    when("task of one", calls=[("run_shell_command", {"command": f"echo {SECRET}; cat keys.txt"})])
    when("task of one", calls=[("complete_task", {"result": {"response": SECRET}, "response": SECRET})])
    when("hello", text="done")
    options = world.options(approval="yolo", env={"MY_SERVICE_TOKEN": SECRET})
    events: list[Any] = list(geminids.stream_sync("hello", options))
    assert lawful(events).complete
    for event in events:
        assert SECRET not in encode_event(event).decode()
    (thought,) = of(events, Thought, parent=None)
    assert (thought.subject, thought.text) == ("About ***", "is it ***?")
    outputs = {tool.name: tool for tool in of(events, ToolFinished)}
    assert outputs["read_file"].output == "the token is ***\n"
    assert "+it is ***\n" in (outputs["write_file"].changes[0].diff or "")
    assert outputs["run_shell_command"].parent is not None
    assert outputs["run_shell_command"].input == {"command": "echo ***; cat keys.txt"}
    assert outputs["run_shell_command"].output == "***\nthe token is ***"
