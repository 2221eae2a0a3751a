"""A run follows its journal: with a CLI of our own that writes one, and does to it what the real one never would."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from complete import of, told
from geminids import Notice, Text, Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.translate.journal import at_of
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.stream_json import decode_block
from geminids.redact import Redactor
from geminids.run.headless.journal import Journal, Merge
from geminids.run.recorder import RunRecorder
from journals import JOURNAL


def test_the_truth_of_a_tool_is_awaited(stand_in: Any) -> None:
    """The journal comes a moment behind the stream: the end of the tool, and what comes after it, wait for it."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("t1") + end("t1") + say("behind it"))
time.sleep(0.1)
answer("m1", call("t1", "the truth"), thought="first")
answer("m2")
out(DONE)
"""
    events, result = told("hi", stand_in(body))
    (tool,) = of(events, ToolFinished)
    assert (tool.output, tool.turn) == ("the truth", 1)
    assert [type(event) for event in events if isinstance(event, (ToolFinished, Text))] == [
        ToolFinished,
        Text,
    ]
    assert [(one.text, one.turn) for one in of(events, Thought)] == [("first", 1)]
    assert [one.turn for one in of(events, TokensUsed, role="main")] == [1, 2]
    assert result.complete


def test_nothing_waits_long_for_what_never_comes(stand_in: Any) -> None:
    """A journal that has not the call: told without it after a moment, and not complete."""
    said = "out(INIT + use('t1') + end('t1', 'of the stream') + say('x'))"
    body = f"{JOURNAL}\nbegin()\n{said}\ntime.sleep(2)\nout(DONE)"
    came: list[float] = []
    began: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolStarted):
            began.append(time.monotonic())
        if isinstance(event, (ToolFinished, Text)):
            came.append(time.monotonic())

    events, result = told("hi", stand_in(body), on_event=on_event)
    assert [tool.output for tool in of(events, ToolFinished)] == ["of the stream"]
    assert max(came) - began[0] < 0.6
    assert not result.complete


def test_a_cli_without_a_journal_costs_no_time(stand_in: Any) -> None:
    """Ten tools, each told when it has ended and not a quarter of a second later."""
    body = """
out(INIT)
for n in range(10):
    out(line("tool_use", tool_name="x", tool_id=str(n), parameters={}))
    out(line("tool_result", tool_id=str(n), status="success", output=repr(time.monotonic())))
    time.sleep(0.03)
out(DONE)
"""
    late: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolFinished):
            late.append(time.monotonic() - float(event.output or "0"))

    _, result = told("hi", stand_in(body), on_event=on_event)
    assert sorted(late)[5] < 0.1, late
    assert (result.outcome, result.complete) == ("success", False)


_TAMPER = {
    "deleted": "os.unlink(FILE)",
    "truncated": "open(FILE, 'w').close()",
    "cut short": "os.truncate(FILE, 30)",
    "replaced": "open(FILE + 'x', 'w').write('{}\\n'); os.replace(FILE + 'x', FILE)",
    "a folder": "os.unlink(FILE); os.mkdir(FILE)",
    "a fifo": "os.unlink(FILE); os.mkfifo(FILE)",
    "a link to itself": "os.unlink(FILE); os.symlink(FILE, FILE)",
    "the folder gone": "import shutil; shutil.rmtree(CHATS)",
}


@pytest.mark.parametrize("how", _TAMPER)
def test_whatever_becomes_of_the_journal_the_run_goes_on(stand_in: Any, how: str) -> None:
    """What was told is not told again, what comes later is told by the stream alone; `complete` is false."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("t1", "the truth"), thought="first")
out(INIT + use("t1") + end("t1"))
time.sleep(0.3)
{_TAMPER[how]}
time.sleep(0.3)
out(use("t2") + end("t2", repr(time.monotonic())) + say("done"))
time.sleep(0.4)
out(DONE)
"""
    late: list[float] = []

    def on_event(_: Any, event: Any) -> None:
        if isinstance(event, ToolFinished) and event.id == "t2":
            late.append(time.monotonic() - float(event.output or 0))

    events, result = told("hi", stand_in(body), on_event=on_event)
    assert [tool.output for tool in of(events, ToolFinished, id="t1")] == ["the truth"]
    if how not in ("truncated", "cut short", "replaced"):
        assert late[0] < 0.2, "nothing waits for a journal that is gone"
    assert [one.text for one in of(events, Thought)] == ["first"]
    assert (result.outcome, result.answer, result.complete) == ("success", "done", False)


@pytest.mark.parametrize(
    ("again", "complete"),
    [
        # The new file may have the inode of the old one, and has its text: then nothing was lost.
        pytest.param("os.unlink(FILE); begin()", None, id="deleted and begun anew"),
        pytest.param("open(FILE, 'w').close(); begin()", True, id="the same text"),
        pytest.param("open(FILE, 'w').close(); HEADER['summary'] = 'x'; begin()", False, id="another text"),
    ],
)
def test_a_journal_that_is_written_anew_tells_nothing_twice(
    stand_in: Any, again: str, complete: bool | None
) -> None:
    """The same messages come once more: what is new in them is told, the rest is not."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("t1", "one"), thought="first")
out(INIT + use("t1") + end("t1"))
time.sleep(0.3)
{again}
answer("m1", call("t1", "one"), thought="first")
answer("m2", call("t2", "two"), thought="second")
out(use("t2") + end("t2") + DONE)
"""
    events, result = told("hi", stand_in(body))
    assert [one.text for one in of(events, Thought)] == ["first", "second"]
    assert [tool.output for tool in of(events, ToolFinished)] == ["one", "two"]
    assert len(of(events, TokensUsed, role="main")) == 2
    assert complete in (None, result.complete), "who wrote something else may have left something out"


def test_nonsense_in_a_journal_costs_nothing(stand_in: Any) -> None:
    """Broken lines, records that nobody knows, odd values: passed over."""
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
    events, result = told("hi", stand_in(body))
    assert result.ok
    assert [one.text for one in of(events, Thought) if one.text] == ["odd", "first"]
    assert [tool.output for tool in of(events, ToolFinished)] == ['{"a":[1]}']
    assert of(events, Notice, code="journal") == []
    assert not result.complete, "nobody knows what the broken lines were"


def test_two_agents_at_once_wait_for_their_names(stand_in: Any) -> None:
    """Which file belongs to which call is known when a call is over; nothing is told of either before."""
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
    events, result = told("hi", stand_in(body))
    assert {tool.id: tool.parent for tool in of(events, ToolFinished)} == {
        "t-a": "c1",
        "t-b": "c2",
        "c1": None,
        "c2": None,
    }
    assert {one.text: one.parent for one in of(events, Thought)} == {"a": "c1", "b": "c2"}
    (text,) = of(events, Text)
    assert min(one.seq for one in of(events, Thought)) > text.seq
    assert [tool.id for tool in result.turns[0].tools] == ["t-a", "c1", "t-b", "c2"]
    assert result.complete


def test_an_agent_that_was_done_in_a_moment_is_told(stand_in: Any) -> None:
    """Its file appears and the run is over before the folder was looked at again."""
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
    events, result = told("hi", stand_in(body))
    assert [(tool.id, tool.parent) for tool in result.turns[0].tools] == [("t-a", "c1"), ("c1", None)]
    assert [one.text for one in of(events, Thought, parent="c1")] == ["quick"]
    assert result.complete


def test_an_agent_is_not_given_to_the_only_call_where_two_are_there(stand_in: Any) -> None:
    """The second call may stand in the pipe still: neither file is told before one of them has its name."""
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
    _, result = told("hi", stand_in(body))
    assert [(tool.id, tool.parent) for tool in result.turns[0].tools] == [
        ("t-b", "c1"),
        ("c1", None),
        ("t-a", "c2"),
        ("c2", None),
    ]


def test_an_agent_that_was_cut_off_at_once_is_told(stand_in: Any) -> None:
    """Its call is never over, and its file is younger than the last look at the folder."""
    body = f"""{JOURNAL}
begin()
out(INIT + use("c1", "invoke_agent"))
time.sleep(0.15)
file = os.path.join(CHATS, ID, "a.jsonl")
write(dict(HEADER, sessionId="a", kind="subagent"), file)
answer("m-a", call("t-a", "of a"), file=file)
os.kill(os.getpid(), 9)
"""
    events, result = told("hi", stand_in(body))
    # A busy machine sees the file before the end of the process, an idle one after it.
    assert {(tool.id, tool.status, tool.parent) for tool in of(events, ToolFinished)} == {
        ("c1", "cancelled", None),
        ("t-a", "ok", "c1"),
    }
    assert len(of(events, ToolFinished)) == 2
    assert not result.complete


def test_an_agent_whose_journal_is_missing(stand_in: Any) -> None:
    """The call is told with its output, and the run is not complete."""
    body = f"""{JOURNAL}
begin()
answer("m1", call("c1", "x", "invoke_agent", agentId="a"))
out(INIT + use("c1", "invoke_agent") + end("c1") + DONE)
"""
    events, result = told("hi", stand_in(body))
    assert [tool.output for tool in of(events, ToolFinished)] == ["x"]
    assert not result.complete


@pytest.mark.parametrize("error", [RuntimeError, RecursionError])
def test_a_mistake_of_ours_costs_the_journal_and_not_the_run(tmp_path: Path, error: type[Exception]) -> None:
    """One notice without the secret in it; what was held is passed on."""
    got: list[Any] = []
    recorder = RunRecorder()
    recorder.redactor = redactor = Redactor(["hunter2hunter2"])
    stream = StreamTranslator(recorder, redactor)
    stream.translate(decode_block(json.dumps({"type": "init", "session_id": "s"}).encode() + b"\n"))
    merge = Merge(lambda events, _: got.extend(events))

    def find(_: str) -> Path:
        raise error("no hunter2hunter2")

    journal = Journal(merge, stream, recorder, find)
    journal.look()
    journal.look()
    journal.finish()
    assert [(type(event), event.message) for event in got] == [
        (Notice, f"the session journal is not followed any more: {error.__name__}: no ***")
    ]
    assert not journal.whole


def test_a_search_that_fails_is_tried_again(tmp_path: Path) -> None:
    """A folder that cannot be listed at the moment is no reason to give up."""
    recorder, redactor = RunRecorder(), Redactor()
    stream = StreamTranslator(recorder, redactor)
    stream.translate(decode_block(b'{"type":"init","session_id":"s"}\n'))
    merge = Merge(lambda events, _: None)
    file = tmp_path / "session.jsonl"
    tries: list[int] = []

    def find(_: str) -> Path | None:
        tries.append(1)
        if len(tries) == 1:
            raise PermissionError("not now")
        return file

    file.write_text('{"sessionId":"s","projectHash":"x"}\n')
    journal = Journal(merge, stream, recorder, find)
    journal.look()
    assert not merge.following
    until = time.monotonic() + 5
    while not merge.following and time.monotonic() < until:
        journal.look()
    assert merge.following and journal.whole
    assert len(tries) == 2


def test_what_was_said_before_a_resumed_run_is_not_told(tmp_path: Path) -> None:
    """Also where the journal is written anew with the old conversation in it, as for a session of an old release."""

    def said(name: str, hour: int) -> str:
        stamp = f"2026-11-16T{hour:02}:00:00.000Z"
        thought = {"subject": "", "description": name, "timestamp": stamp}
        return json.dumps({"id": name, "type": "gemini", "timestamp": stamp, "thoughts": [thought]}) + "\n"

    header = '{"sessionId":"s","projectHash":"x"}\n'
    file, other = tmp_path / "session.jsonl", tmp_path / "other.jsonl"
    file.write_text(header + said("old", 3))
    got: list[Any] = []
    recorder, redactor = RunRecorder(), Redactor()
    stream = StreamTranslator(recorder, redactor)
    merge = Merge(lambda events, _: got.extend(events))
    since = at_of("2026-11-16T04:00:00.000Z")
    journal = Journal(merge, stream, recorder, lambda _: file, file, "s", since)
    journal.look()
    assert journal.whole
    other.write_text(header + '{"$set":{"summary":"x"}}\n' + said("old", 3) + said("new", 5))
    other.replace(file)
    journal.look()
    assert [event.text for event in got] == ["new"]
    assert not journal.whole
