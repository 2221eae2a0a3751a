"""Complete events in hard cases: timing, a lost journal, a stopped run, secrets."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import geminids
from collect_events import check_events, run_and_collect, select_events
from geminids import Notice, Text, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import encode_event

pytestmark = pytest.mark.real

AGENT = ("invoke_agent", {"agent_name": "generalist", "prompt": "The task of one."})


class JournalWatch:
    """Records when each text first appears in the session files of a home; looks every two
    milliseconds."""

    def __init__(self, home: Path, *texts: bytes) -> None:
        self._home = home
        self._texts = texts
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.seen_at: dict[bytes, float] = {}

    def _poll(self) -> None:
        while not self._stopped.wait(0.002):
            for file in (self._home / ".gemini" / "tmp").glob("*/chats/**/*.jsonl"):
                data = file.read_bytes()
                for text in self._texts:
                    if text in data:
                        self.seen_at.setdefault(text, time.monotonic())

    def __enter__(self) -> JournalWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def test_events_are_on_time(world: Any) -> None:
    """Outputs and thoughts, also those of a subagent, are reported within 200 ms after they appear
    in the journal. Text still arrives piece by piece."""
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
    # The agent works for a while after its tool has ended. The tool's event must not wait for the
    # agent.
    gateway.when(
        "task of one", calls=[("complete_task", {"result": {"response": "x"}, "response": "x"})], delay=0.6
    )
    gateway.when("hello", text=["slow ", "and ", "slower"], pause=0.3)
    reported_at: dict[bytes, float] = {}
    text_times: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, Text):
            text_times.append(time.monotonic())
        content = event.text if isinstance(event, Thought) else getattr(event, "output", None)
        if content and isinstance(event, (Thought, ToolFinished)):
            reported_at[content.strip().encode()] = time.monotonic()

    expected = (b"out-of-shell", b"thought-of-main", b"text-of-one", b"thought-of-one")
    with JournalWatch(world.home, *expected) as watch:
        _, result = run_and_collect("hello", world.options(approval="yolo"), on_event=on_event)
    assert result.complete
    delays = {text: reported_at[text] - watch.seen_at[text] for text in expected}
    print("delays in ms:", {text.decode(): round(1000 * delay) for text, delay in delays.items()})
    assert max(delays.values()) < 0.2, delays
    assert len(text_times) == 3
    assert min(after - before for before, after in itertools.pairwise(text_times)) > 0.15, text_times


_TAMPER_COMMANDS = {
    "deleted": "rm $HOME/.gemini/tmp/*/chats/*.jsonl",
    "truncated": "for f in $HOME/.gemini/tmp/*/chats/*.jsonl; do : > $f; done",
    "replaced": "for f in $HOME/.gemini/tmp/*/chats/*.jsonl; do echo '{\"id\":1}' > x; mv x $f; done",
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, marks=() if damage == "deleted" else pytest.mark.deep)
        for damage in _TAMPER_COMMANDS
    ],
)
def test_a_run_survives_the_loss_of_its_journal(world: Any, damage: str) -> None:
    """A run that loses its journal continues with stream-json, and its result is not marked as
    complete."""
    world.gateway.reply(
        thought="**First**\nknown",
        calls=[("run_shell_command", {"command": f"sleep 0.3; {_TAMPER_COMMANDS[damage]}"})],
    )
    world.gateway.reply(calls=[("run_shell_command", {"command": "echo still here"})])
    world.gateway.reply(text="done")
    events, result = run_and_collect("hello", world.options(approval="yolo"))
    assert (result.outcome, result.answer, result.complete) == ("success", "done", False)
    assert [one.text for one in select_events(events, Thought)] == ["known"]
    assert len(select_events(events, ToolFinished, status="ok")) == 2
    assert [one.message for one in select_events(events, Notice, code="journal")] == []


def _stop_when(world: Any, name: str) -> Any:
    """Return an event handler that stops the run after a tool has made this file."""
    started: list[bool] = []

    def on_event(run: Any, event: Any) -> None:
        if isinstance(event, ToolStarted) and not started:
            started.append(True)
            threading.Thread(target=_stop_soon, args=(run, world.cwd / name)).start()

    return on_event


def _stop_soon(run: Any, file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)  # longer than the interval at which the journal is read
    run.stop()


@pytest.mark.parametrize("ending", ["stopped", pytest.param("timed out", marks=pytest.mark.deep)])
def test_a_stopped_run_reports_what_is_known(world: Any, ending: str) -> None:
    """A stopped run reports the thoughts, tokens and ended tools of its journal. A tool that was
    still running is reported as `cancelled`."""
    (world.cwd / "a.txt").write_text("alpha\n")
    world.gateway.reply(thought="**One**\nread", calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.reply(
        thought="**Two**\nrun", calls=[("run_shell_command", {"command": "touch here; sleep 300"})]
    )
    fields: dict[str, Any] = {"approval": "yolo", "grace": 1.0}
    if ending == "timed out":
        events, result = run_and_collect("hello", world.options(timeout=6, **fields))
    else:
        events, result = run_and_collect("hello", world.options(**fields), on_event=_stop_when(world, "here"))
    assert result.outcome == ("interrupted" if ending == "stopped" else "timed_out")
    assert [(one.text, one.turn) for one in select_events(events, Thought)] == [("read", 1), ("run", 2)]
    read, shell = select_events(events, ToolFinished)
    assert (read.status, read.output) == ("ok", "alpha\n")
    assert (shell.status, shell.exit_code) == ("cancelled", None)
    assert len(select_events(events, TokensUsed)) == 2
    assert not result.complete


@pytest.mark.deep
def test_a_subagent_that_is_stopped(world: Any) -> None:
    """If a run is stopped, the call of its subagent ends as `cancelled`, and the tools that the
    subagent has finished are reported."""
    (world.cwd / "one.txt").write_text("text of one\n")
    world.gateway.when("hello", calls=[AGENT])
    world.gateway.when("task of one", calls=[("read_file", {"file_path": "one.txt"})])
    world.gateway.when("task of one", calls=[("run_shell_command", {"command": "touch here; sleep 300"})])
    options = world.options(approval="yolo", grace=1.0)
    events, result = run_and_collect("hello", options, on_event=_stop_when(world, "here"))
    assert result.outcome == "interrupted"
    (call,) = select_events(events, ToolStarted, name="invoke_agent")
    assert select_events(events, ToolFinished, id=call.id)[0].status == "cancelled"
    inner = select_events(events, ToolFinished, parent=call.id)
    assert ("read_file", "text of one\n") in [(tool.name, tool.output) for tool in inner]


SECRET = "tok_live_7f3Qx9LmZ2"


def test_secrets_from_the_journal_are_masked(world: Any) -> None:
    """Secrets in the journal are masked in outputs, thoughts and diffs, and in a subagent's
    arguments and outputs."""
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
    assert check_events(events).complete
    for event in events:
        assert SECRET not in encode_event(event).decode()
    (thought,) = select_events(events, Thought, parent=None)
    assert (thought.subject, thought.text) == ("About ***", "is it ***?")
    outputs = {tool.name: tool for tool in select_events(events, ToolFinished)}
    assert outputs["read_file"].output == "the token is ***\n"
    assert "+it is ***\n" in (outputs["write_file"].changes[0].diff or "")
    assert outputs["run_shell_command"].parent is not None
    assert outputs["run_shell_command"].input == {"command": "echo ***; cat keys.txt"}
    assert outputs["run_shell_command"].output == "***\nthe token is ***"
