"""Messages of a journal become what the stream leaves out: from recordings of the real CLI, and from odd ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from geminids import Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import Change
from geminids.events.numbering import EventNumbers
from geminids.events.translate.journal import JournalTranslator, Truth, at_of, truth_of, with_truth
from geminids.gemini.protocol.journal.records import Header, Message, ToolCall, decode_record
from geminids.redact import Redactor
from recordings import RECORDINGS, all_files, recorded

JOURNALS = ("0.61.0", "0.41.2")
_WHERE: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}


def _messages(lines: list[bytes]) -> list[Message]:
    return [record for line in lines if isinstance(record := decode_record(line), Message)]


def _first_run(version: str, prompt: str) -> list[Message]:
    """The messages of the run that began the session: a resumed run in the same minute begins with a header too."""
    file, _ = recorded(version, prompt)
    lines = file.read_bytes().splitlines()
    headers = [at for at, line in enumerate(lines) if isinstance(decode_record(line), Header)]
    return _messages(lines[: headers[1] if len(headers) > 1 else None])


def _translated(
    messages: list[Message], secrets: tuple[str, ...] = (), **how: Any
) -> tuple[list[Any], dict[str, Truth]]:
    translator = JournalTranslator(EventNumbers(), Redactor(secrets), **how)
    events: list[Any] = []
    truths: dict[str, Truth] = {}
    for message in messages:
        told, known = translator.translate(message)
        events += told
        assert not truths.keys() & known.keys(), "told twice"
        truths |= known
    assert [event.seq for event in events] == list(range(len(events)))
    return events, truths


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_run(version: str) -> None:
    """Thoughts and tokens with their turns, true outputs, the exit code, the diff of a new file, an error."""
    events, truths = _translated(_first_run(version, "What is x?"))
    thoughts = [(one.subject, one.text, one.turn) for one in events if isinstance(one, Thought)]
    assert thoughts == [("Look first", "I read the file.", 1), ("Sum up", "Nearly done.", 5)]
    tokens = [one for one in events if isinstance(one, TokensUsed)]
    assert [one.turn for one in tokens] == [1, 2, 3, 4, 5]
    assert {(one.input, one.cached, one.output, one.thinking, one.tool, one.role) for one in tokens} == {
        (100, 40, 7, 5, 0, "main")
    }
    assert all(one.model and one.at > 1_700_000_000_000 for one in tokens)
    assert not [one for one in events if isinstance(one, (ToolStarted, ToolFinished))]
    read, write, shell, missing = truths.values()
    assert (read.output, read.exit_code, read.changes) == ("x = 1\n", None, ())
    (change,) = write.changes
    assert (change.path, change.kind) == ("/recorded/repo/b.py", "created")
    assert change.diff is not None and "\n+y = 2\n" in change.diff
    assert (shell.output, shell.exit_code) == ("out\noops", 3)
    assert missing.output is None
    assert missing.error is not None and "File not found" in missing.error


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_subagent(version: str) -> None:
    """With its call as `parent` and the turn of that: tools begin and end, thoughts, tokens of its role."""
    _, truths = _translated(_first_run(version, "Ask an agent."))
    ((call, truth),) = truths.items()
    (file,) = (RECORDINGS / version).glob("*/*.jsonl")
    assert truth.agent_id == file.stem
    events, _ = _translated(_messages(file.read_bytes().splitlines()), parent=call, turn=3)
    assert {event.turn for event in events} == {3}
    assert [one.text for one in events if isinstance(one, Thought) and one.parent == call] == ["Reading."]
    begun = [one for one in events if isinstance(one, ToolStarted)]
    ended = [one for one in events if isinstance(one, ToolFinished)]
    assert [one.id for one in begun] == [one.id for one in ended]
    assert [(one.name, one.status, one.parent) for one in ended] == [
        ("read_file", "ok", call),
        ("complete_task", "ok", call),
    ]
    assert (begun[0].kind, begun[0].paths) == ("read", ("/recorded/repo/a.py",))
    assert ended[0].output == "x = 1\n"
    assert {one.role for one in events if isinstance(one, TokensUsed)} == {"subagent"}


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_cancelled_shell_has_no_exit_code(version: str) -> None:
    """What became of it nobody knows."""
    _, truths = _translated(_messages(recorded(version, "Sleep.")[0].read_bytes().splitlines()))
    (truth,) = truths.values()
    assert truth.exit_code is None
    assert truth.output is not None and truth.output.startswith("Command was cancelled by user")


@pytest.mark.parametrize("file", all_files(), ids=lambda file: f"{file.parent.name}/{file.stem[-8:]}")
def test_every_recording_can_be_told_and_is_told_once(file: Any) -> None:
    """The same records a second time say nothing new, in whatever order."""
    messages = _messages(file.read_bytes().splitlines())
    once, known = _translated(messages)
    twice, known_too = _translated([*messages, *messages, *reversed(messages)])
    assert [type(event) for event in twice] == [type(event) for event in once]
    assert known == known_too


def _shell(output: str, display: Any = None) -> tuple[str | None, int | None]:
    part = {"functionResponse": {"response": {"output": output}}}
    shown = msgspec.Raw(json.dumps(display).encode())
    truth = truth_of(ToolCall(id="1", name="run_shell_command", result=[part], status="success", shown=shown))
    assert truth is not None
    return truth.output, truth.exit_code


_GROUP = "\nProcess Group PGID: 7"


@pytest.mark.parametrize(
    ("told", "output", "code"),
    [
        ("Output: hi" + _GROUP, "hi", 0),
        ("Output: (empty)" + _GROUP, "", 0),
        ("Output: (empty)\nExit Code: 1" + _GROUP, "", 1),
        ("Output: a\nb\n\nc\nExit Code: 127" + _GROUP, "a\nb\n\nc", 127),
        ("Output: Error: x\nError: y\nmore\nExit Code: 2" + _GROUP, "Error: x\nError: y\nmore", 2),
        ("Output: x\nExit Code: 5\nlast" + _GROUP, "x\nExit Code: 5\nlast", 0),
        ("Output: x\nProcess Group PGID: 3\ny" + _GROUP, "x\nProcess Group PGID: 3\ny", 0),
        ("Output: x\nError: spawn failed" + _GROUP, "x", None),
        ("Output: x\nSignal: 9" + _GROUP, "x", None),
        ("Output: x\nExit Code: 1\nBackground PIDs: 3, 4" + _GROUP, "x", 1),
        ("<untrusted_context>\nOutput: x\nExit Code: 3" + _GROUP + "\n</untrusted_context>", "x", 3),
        ("Too large. The end:\nx\nExit Code: 3" + _GROUP, "Too large. The end:\nx", 3),
        ("Command was cancelled by user.", "Command was cancelled by user.", None),
        ("Command moved to background (PID: 3).", "Command moved to background (PID: 3).", None),
        ("", "", None),
    ],
)
def test_what_a_shell_told(told: str, output: str, code: int | None) -> None:
    """The output as it was, whatever lines it has; the exit code where the command has come to an end."""
    assert _shell(told) == (output, code)


def test_an_output_that_ends_like_the_lines_about_it() -> None:
    """What the CLI would show has the output alone, and decides; where it does not show it, nobody can know."""
    told = "Output: it said\nExit Code: 7" + _GROUP
    assert _shell(told, "it said\nExit Code: 7") == ("it said\nExit Code: 7", 0)
    assert _shell(told, "it said") == ("it said", 7)
    assert _shell(told, [[{"text": "it said"}]]) == ("it said", 7)


def test_a_long_output_takes_no_long_time() -> None:
    """A megabyte of lines that all look like what comes behind the output."""
    lines = "\nError: x\nExit Code: 1\nSignal: 9" * 30_000
    assert _shell(f"Output: {lines}\nlast" + _GROUP) == (f"{lines}\nlast", 0)


def test_while_a_tool_runs_nothing_is_known() -> None:
    """Neither for a call without a result, nor for a result that is none; an error or a stop is an end."""
    assert truth_of(ToolCall(id="1", name="x", status="executing")) is None
    assert truth_of(ToolCall(id="1", name="x", result=[3, {"text": "x"}], status="success")) is None
    assert truth_of(ToolCall(id="1", name="x", status="error")) == Truth(input={})
    assert truth_of(ToolCall(id="1", name="x", status="cancelled")) == Truth(status="cancelled", input={})


@pytest.mark.parametrize(
    ("display", "changes"),
    [
        ({"fileDiff": "d", "filePath": "/a", "isNewFile": True}, (Change("/a", "created", "d"),)),
        ({"fileDiff": "d", "fileName": "a", "isNewFile": False}, (Change("a", "edited", "d"),)),
        ({"fileDiff": "d"}, ()),
        ({"fileDiff": 3, "filePath": "/a"}, ()),
        ("text", ()),
        (None, ()),
    ],
)
def test_changes(display: Any, changes: tuple[Change, ...]) -> None:
    """Of what the CLI would show as a diff."""
    part = {"functionResponse": {"response": {"output": "ok"}}}
    shown = msgspec.Raw(json.dumps(display).encode())
    truth = truth_of(ToolCall(id="1", name="replace", result=[part], shown=shown))
    assert truth is not None and truth.changes == changes


def _finished(status: Any = "ok", **fields: Any) -> ToolFinished:
    return ToolFinished(**_WHERE, id="1", name="x", input=None, status=status, **fields)


def test_what_the_stream_knows_better_stays() -> None:
    """A denied call as it was told; an error in the stream's words; the rest is the journal's."""
    truth = Truth(output="true", error="why", exit_code=3, changes=(Change("a", "edited"),))
    told = with_truth(_finished(output="short", duration_ms=5), truth)
    assert (told.output, told.error, told.exit_code, told.duration_ms) == ("true", None, 3, 5)
    assert told.changes == truth.changes
    denied = _finished("denied", error="by a rule")
    assert with_truth(denied, truth) == denied
    assert with_truth(denied, Truth(input={"a": 1})) == msgspec.structs.replace(denied, input={"a": 1})
    assert with_truth(_finished("failed", error="its words"), truth).error == "its words"
    assert with_truth(_finished("failed"), truth).error == "why"
    assert with_truth(_finished(output="short"), Truth(status="cancelled")).status == "cancelled"
    assert with_truth(_finished(output="short"), Truth()).output == "short"


def test_secrets_go_and_words_of_the_cli_stay() -> None:
    """In output, error, path, diff, thought and arguments; not in a status, a kind or an id that reads like one."""
    secret = "hunter2hunter2"
    part = {"functionResponse": {"response": {"output": f"a {secret}", "error": secret}}}
    shown = msgspec.Raw(
        json.dumps({"fileDiff": f"+{secret}", "filePath": f"/{secret}", "isNewFile": True}).encode()
    )
    call = ToolCall(
        id="t-cancelled",
        name="replace",
        args={"x": [secret]},
        result=[part],
        status="cancelled",
        agent_id="cancelled",
        shown=shown,
    )
    thought = {"subject": f"on {secret}", "description": secret}
    message = decode_record(
        json.dumps({"id": "m", "type": "gemini", "thoughts": [thought], "timestamp": "x"}).encode()
    )
    assert isinstance(message, Message)
    message = msgspec.structs.replace(message, tool_calls=[call])
    events, truths = _translated([message], (secret, "cancelled", "created"), parent="p")
    truth = truths["t-cancelled"]
    assert (truth.output, truth.error, truth.status, truth.agent_id) == (
        "a ***",
        "***",
        "cancelled",
        "cancelled",
    )
    assert truth.changes == (Change("/***", "created", "+***"),)
    assert secret not in repr(events)
    assert [one.input for one in events if isinstance(one, ToolFinished)] == [{"x": ["***"]}]


@pytest.mark.parametrize("stamp", ["", "soon", "0001-01-01T00:00:00", "99999-01-01T00:00:00Z"])
def test_a_time_that_is_none(stamp: str) -> None:
    """Is 0, or what it says, and never an error."""
    assert at_of(stamp) <= 0
