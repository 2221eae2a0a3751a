"""Runs that follow the session journal.

A fake CLI writes it, and damages it in ways that the real CLI never does.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from collect_events import run_and_collect, select_events
from geminids import Notice, Text, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.translate.journal import at_of
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.stream_json import decode_block
from geminids.redact import Redactor
from geminids.run.headless.journal import Journal, Merge
from geminids.run.recorder import RunRecorder
from journals import JOURNAL


def test_the_end_of_a_tool_waits_for_the_journal(fake_cli: Any) -> None:
    """`ToolFinished` and later events wait until the journal, which is written after the stream,
    has the tool's full output."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("t1") + end("t1") + say("after it"))
time.sleep(0.1)
answer("m1", call("t1", "full output"), thought="first")
answer("m2")
out(DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    (tool,) = select_events(events, ToolFinished)
    assert (tool.output, tool.turn) == ("full output", 1)
    assert [type(event) for event in events if isinstance(event, (ToolFinished, Text))] == [
        ToolFinished,
        Text,
    ]
    assert [(event.text, event.turn) for event in select_events(events, Thought)] == [("first", 1)]
    assert [event.turn for event in select_events(events, TokensUsed, role="main")] == [1, 2]
    assert result.complete


def test_the_wait_for_the_journal_is_short(fake_cli: Any) -> None:
    """If the journal lacks a tool call, the call is reported after a short wait, and the run is not
    complete."""
    output = "out(INIT + use('t1') + end('t1', 'of the stream') + say('x'))"
    body = f"{JOURNAL}\nbegin()\n{output}\ntime.sleep(2)\nout(DONE)"
    arrived: list[float] = []
    started: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolStarted):
            started.append(time.monotonic())
        if isinstance(event, (ToolFinished, Text)):
            arrived.append(time.monotonic())

    events, result = run_and_collect("hi", fake_cli(body), on_event=on_event)
    assert [tool.output for tool in select_events(events, ToolFinished)] == ["of the stream"]
    assert max(arrived) - started[0] < 0.6
    assert not result.complete


def test_without_a_journal_nothing_waits(fake_cli: Any) -> None:
    """Without a journal each tool is reported as soon as it ends, and the run is not complete."""
    body = """
out(INIT)
for n in range(10):
    out(line("tool_use", tool_name="x", tool_id=str(n), parameters={}))
    out(line("tool_result", tool_id=str(n), status="success", output=repr(time.monotonic())))
    time.sleep(0.03)
out(DONE)
"""
    delays: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolFinished):
            delays.append(time.monotonic() - float(event.output or "0"))

    _, result = run_and_collect("hi", fake_cli(body), on_event=on_event)
    assert sorted(delays)[5] < 0.1, delays
    assert (result.outcome, result.complete) == ("success", False)


_DAMAGE = {
    "deleted": "os.unlink(FILE)",
    "truncated": "open(FILE, 'w').close()",
    "cut short": "os.truncate(FILE, 30)",
    "replaced": "open(FILE + 'x', 'w').write('{}\\n'); os.replace(FILE + 'x', FILE)",
    "a folder": "os.unlink(FILE); os.mkdir(FILE)",
    "a fifo": "os.unlink(FILE); os.mkfifo(FILE)",
    "a link to itself": "os.unlink(FILE); os.symlink(FILE, FILE)",
    "the folder gone": "import shutil; shutil.rmtree(CHATS)",
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_a_damaged_journal_does_not_stop_the_run(fake_cli: Any, damage: str) -> None:
    """If the journal is damaged, the run continues: no event is repeated, later ones come from the
    stream, and `complete` is false."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("t1", "full output"), thought="first")
out(INIT + use("t1") + end("t1"))
time.sleep(0.3)
{_DAMAGE[damage]}
time.sleep(0.3)
out(use("t2") + end("t2", repr(time.monotonic())) + say("done"))
time.sleep(0.4)
out(DONE)
"""
    delays: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolFinished) and event.id == "t2":
            delays.append(time.monotonic() - float(event.output or 0))

    events, result = run_and_collect("hi", fake_cli(body), on_event=on_event)
    assert [tool.output for tool in select_events(events, ToolFinished, id="t1")] == ["full output"]
    if damage not in ("truncated", "cut short", "replaced"):
        assert delays[0] < 0.2, "an event waited for a missing journal"
    assert [thought.text for thought in select_events(events, Thought)] == ["first"]
    assert (result.outcome, result.answer, result.complete) == ("success", "done", False)


@pytest.mark.parametrize(
    ("rewrite", "complete"),
    [
        # The new file has the old text. If it also has the old inode, the run stays complete.
        pytest.param("os.unlink(FILE); begin()", None, id="deleted and started again"),
        pytest.param("open(FILE, 'w').close(); begin()", True, id="the same text"),
        pytest.param("open(FILE, 'w').close(); HEADER['summary'] = 'x'; begin()", False, id="another text"),
    ],
)
def test_a_rewritten_journal_is_not_reported_twice(
    fake_cli: Any, rewrite: str, complete: bool | None
) -> None:
    """If the journal is rewritten, only new messages are reported."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("t1", "one"), thought="first")
out(INIT + use("t1") + end("t1"))
time.sleep(0.3)
{rewrite}
answer("m1", call("t1", "one"), thought="first")
answer("m2", call("t2", "two"), thought="second")
out(use("t2") + end("t2") + DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    assert [thought.text for thought in select_events(events, Thought)] == ["first", "second"]
    assert [tool.output for tool in select_events(events, ToolFinished)] == ["one", "two"]
    assert len(select_events(events, TokensUsed, role="main")) == 2
    assert complete in (None, result.complete), "a changed text may lack records"


def test_invalid_records_of_a_journal_are_ignored(fake_cli: Any) -> None:
    """Broken lines, unknown records and odd values of a journal are ignored; the run is not
    complete."""
    body = f"""{JOURNAL}
begin()
for odd in ('{{', '[]', 'null', '{{"id":3}}', '{{"$rewindTo":"m0"}}', '{{"$set":[]}}', '\\0', '"x"'):
    write(odd)
write(dict(id="m0", type="gemini", timestamp=7, thoughts=[3, dict(subject=None)], tokens=dict(input="x"),
           toolCalls=[7, dict(id=1), dict(id="t9", name="x", result=[None, 3, dict(functionResponse=4)])]))
write(dict(id="m00", type="gemini", timestamp="-9999999999-01-01T00:00:00Z", thoughts=[dict(description="odd")]))
answer("m1", call("t1", dict(a=[1])), thought="first")
out(INIT + use("t1") + end("t1") + DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    assert result.ok
    assert [thought.text for thought in select_events(events, Thought) if thought.text] == ["odd", "first"]
    assert [tool.output for tool in select_events(events, ToolFinished)] == ['{"a":[1]}']
    assert select_events(events, Notice, code="journal") == []
    assert not result.complete, "a broken line may have been a record"


def test_two_subagents_wait_for_their_calls(fake_cli: Any) -> None:
    """Events of two subagent files are reported only after the finished calls show which call each
    file belongs to."""
    body = f"""{JOURNAL}
begin()
AGENTS = os.path.join(CHATS, ID)
out(INIT + use("c1", "invoke_agent") + use("c2", "invoke_agent"))
for agent in ("b", "a"):
    file = os.path.join(AGENTS, agent + ".jsonl")
    write(dict(HEADER, sessionId=agent, kind="subagent"), file)
    answer("m-" + agent, call("t-" + agent, "of " + agent), thought=agent, file=file)
time.sleep(0.3)
out(say("not yet"))
time.sleep(0.1)
answer("m1", call("c1", "x", "invoke_agent", agentId="a"), call("c2", "y", "invoke_agent", agentId="b"))
out(end("c1") + end("c2") + DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    assert {tool.id: tool.parent for tool in select_events(events, ToolFinished)} == {
        "t-a": "c1",
        "t-b": "c2",
        "c1": None,
        "c2": None,
    }
    assert {thought.text: thought.parent for thought in select_events(events, Thought)} == {
        "a": "c1",
        "b": "c2",
    }
    (text,) = select_events(events, Text)
    assert min(thought.seq for thought in select_events(events, Thought)) > text.seq
    assert [tool.id for tool in result.turns[0].tools] == ["t-a", "c1", "t-b", "c2"]
    assert result.complete


def test_a_subagent_that_ends_quickly_is_reported(fake_cli: Any) -> None:
    """A subagent is reported even if its file appears and the run ends before the folder is listed
    again."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("c1", "invoke_agent"))
time.sleep(0.15)
file = os.path.join(CHATS, ID, "a.jsonl")
write(dict(HEADER, sessionId="a", kind="subagent"), file)
answer("m-a", call("t-a", "of a"), thought="quick", file=file)
answer("m1", call("c1", "x", "invoke_agent", agentId="a"))
out(end("c1") + DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    assert [(tool.id, tool.parent) for tool in result.turns[0].tools] == [("t-a", "c1"), ("c1", None)]
    assert [thought.text for thought in select_events(events, Thought, parent="c1")] == ["quick"]
    assert result.complete


def test_a_subagent_is_not_assigned_to_a_wrong_call(fake_cli: Any) -> None:
    """If two subagent files exist and only one call is known, neither file is assigned to it before
    the calls name their agents."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("c1", "invoke_agent"))
for agent in ("a", "b"):
    file = os.path.join(CHATS, ID, agent + ".jsonl")
    write(dict(HEADER, sessionId=agent, kind="subagent"), file)
    answer("m-" + agent, call("t-" + agent, "of " + agent), file=file)
time.sleep(0.4)
out(use("c2", "invoke_agent"))
answer("m1", call("c1", "x", "invoke_agent", agentId="b"), call("c2", "y", "invoke_agent", agentId="a"))
out(end("c1") + end("c2") + DONE)
"""
    _, result = run_and_collect("hi", fake_cli(body))
    assert [(tool.id, tool.parent) for tool in result.turns[0].tools] == [
        ("t-b", "c1"),
        ("c1", None),
        ("t-a", "c2"),
        ("c2", None),
    ]


def test_a_killed_subagent_is_reported(fake_cli: Any) -> None:
    """A subagent is reported even if the CLI is killed during its call, right after the file
    appeared."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("c1", "invoke_agent"))
time.sleep(0.15)
file = os.path.join(CHATS, ID, "a.jsonl")
write(dict(HEADER, sessionId="a", kind="subagent"), file)
answer("m-a", call("t-a", "of a"), file=file)
os.kill(os.getpid(), 9)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    # The order depends on the load: the file may be seen before or after the process ends.
    assert {(tool.id, tool.status, tool.parent) for tool in select_events(events, ToolFinished)} == {
        ("c1", "cancelled", None),
        ("t-a", "ok", "c1"),
    }
    assert len(select_events(events, ToolFinished)) == 2
    assert not result.complete


def test_a_subagent_without_a_journal(fake_cli: Any) -> None:
    """A subagent call without a journal is reported with its output, and the run is not
    complete."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("c1", "x", "invoke_agent", agentId="a"))
out(INIT + use("c1", "invoke_agent") + end("c1") + DONE)
"""
    events, result = run_and_collect("hi", fake_cli(body))
    assert [tool.output for tool in select_events(events, ToolFinished)] == ["x"]
    assert not result.complete


@pytest.mark.parametrize("error", [RuntimeError, RecursionError])
def test_a_bug_in_the_journal_code_does_not_fail_the_run(tmp_path: Path, error: type[Exception]) -> None:
    """An exception in our journal code stops only the journal: one notice reports it, without
    secrets."""
    emitted: list[Any] = []
    recorder = RunRecorder()
    recorder.redactor = redactor = Redactor(["hunter2hunter2"])
    stream = StreamTranslator(recorder, redactor)
    stream.translate(decode_block(json.dumps({"type": "init", "session_id": "s"}).encode() + b"\n"))
    merge = Merge(lambda events, _: emitted.extend(events))

    def find(_: str) -> Path:
        raise error("no hunter2hunter2")

    journal = Journal(merge, stream, recorder, find)
    journal.look()
    journal.look()
    journal.finish()
    assert [(type(event), event.message) for event in emitted] == [
        (
            Notice,
            f"cannot read more of the CLI's session file, so some events may be missing: {error.__name__}: no ***",
        )
    ]
    assert not journal.whole


def test_a_failed_search_is_repeated(tmp_path: Path) -> None:
    """If the journal's folder cannot be listed, the search is repeated later."""
    recorder, redactor = RunRecorder(), Redactor()
    stream = StreamTranslator(recorder, redactor)
    stream.translate(decode_block(b'{"type":"init","session_id":"s"}\n'))
    merge = Merge(lambda events, _: None)
    file = tmp_path / "session.jsonl"
    searches: list[int] = []

    def find(_: str) -> Path | None:
        searches.append(1)
        if len(searches) == 1:
            raise PermissionError("not now")
        return file

    file.write_text('{"sessionId":"s","projectHash":"x"}\n')
    journal = Journal(merge, stream, recorder, find)
    journal.look()
    assert not merge.following
    deadline = time.monotonic() + 5
    while not merge.following and time.monotonic() < deadline:
        journal.look()
    assert merge.following and journal.whole
    assert len(searches) == 2


def test_a_resumed_run_does_not_repeat_older_events(tmp_path: Path) -> None:
    """A resumed run does not repeat older events, even if the journal is rewritten with the old
    conversation."""

    def record_line(name: str, hour: int) -> str:
        stamp = f"2026-11-16T{hour:02}:00:00.000Z"
        thought = {"subject": "", "description": name, "timestamp": stamp}
        return json.dumps({"id": name, "type": "gemini", "timestamp": stamp, "thoughts": [thought]}) + "\n"

    header = '{"sessionId":"s","projectHash":"x"}\n'
    file, other = tmp_path / "session.jsonl", tmp_path / "other.jsonl"
    file.write_text(header + record_line("old", 3))
    emitted: list[Any] = []
    recorder, redactor = RunRecorder(), Redactor()
    stream = StreamTranslator(recorder, redactor)
    merge = Merge(lambda events, _: emitted.extend(events))
    since = at_of("2026-11-16T04:00:00.000Z")
    journal = Journal(merge, stream, recorder, lambda _: file, file, "s", since)
    journal.look()
    assert journal.whole
    other.write_text(header + '{"$set":{"summary":"x"}}\n' + record_line("old", 3) + record_line("new", 5))
    other.replace(file)
    journal.look()
    assert [event.text for event in emitted] == ["new"]
    assert not journal.whole
