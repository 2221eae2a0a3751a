"""Messages of a journal become the events that the stream leaves out, from recordings of the real
CLI and from unusual messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from geminids import Thought, TokensUsed, ToolFinished, ToolStarted
from geminids.events.model import Change
from geminids.events.numbering import EventNumbers
from geminids.events.translate.journal import (
    JournalTranslator,
    ToolRecord,
    at_of,
    tool_record_of,
    with_tool_record,
)
from geminids.gemini.protocol.journal.records import Header, StoredMessage, StoredToolCall, decode_record
from geminids.redact import Redactor
from recordings import RECORDINGS, all_files, recorded

JOURNALS = ("0.61.0", "0.41.2")
_WHERE: dict[str, Any] = {"at": 0, "seq": 0, "attempt": 1, "turn": 1}


def _messages(lines: list[bytes]) -> list[StoredMessage]:
    return [record for line in lines if isinstance(record := decode_record(line), StoredMessage)]


def _first_run(version: str, prompt: str) -> list[StoredMessage]:
    """Return the messages of the run that began the session. A run that resumes it in the same
    minute writes a second header."""
    file, _ = recorded(version, prompt)
    lines = file.read_bytes().splitlines()
    headers = [index for index, line in enumerate(lines) if isinstance(decode_record(line), Header)]
    return _messages(lines[: headers[1] if len(headers) > 1 else None])


def _translate(
    messages: list[StoredMessage], secrets: tuple[str, ...] = (), **fields: Any
) -> tuple[list[Any], dict[str, ToolRecord]]:
    translator = JournalTranslator(EventNumbers(), Redactor(secrets), **fields)
    events: list[Any] = []
    records: dict[str, ToolRecord] = {}
    for message in messages:
        report, known = translator.translate(message)
        events += report
        assert not records.keys() & known.keys(), "reported twice"
        records |= known
    assert [event.seq for event in events] == list(range(len(events)))
    return events, records


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_run(version: str) -> None:
    """The journal gives thoughts and tokens with their turns, full outputs, a shell's exit code,
    the diff of a new file, and an error."""
    events, records = _translate(_first_run(version, "What is x?"))
    thoughts = [(event.subject, event.text, event.turn) for event in events if isinstance(event, Thought)]
    assert thoughts == [("Look first", "I read the file.", 1), ("Sum up", "Nearly done.", 5)]
    tokens = [event for event in events if isinstance(event, TokensUsed)]
    assert [event.turn for event in tokens] == [1, 2, 3, 4, 5]
    assert {
        (event.input, event.cached, event.output, event.thinking, event.tool, event.role) for event in tokens
    } == {(100, 40, 7, 5, 0, "main")}
    assert all(event.model and event.at > 1_700_000_000_000 for event in tokens)
    assert not [event for event in events if isinstance(event, (ToolStarted, ToolFinished))]
    read, write, shell, missing = records.values()
    assert (read.output, read.exit_code, read.changes) == ("x = 1\n", None, ())
    (change,) = write.changes
    assert (change.path, change.kind) == ("/recorded/repo/b.py", "created")
    assert change.diff is not None and "\n+y = 2\n" in change.diff
    assert (shell.output, shell.exit_code) == ("out\noops", 3)
    assert missing.output is None
    assert missing.error is not None and "File not found" in missing.error


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_subagent(version: str) -> None:
    """Events of a subagent have its call as `parent`, and the turn of that call: tools, thoughts,
    and tokens with the role `subagent`."""
    _, records = _translate(_first_run(version, "Ask an agent."))
    ((call, record),) = records.items()
    (file,) = (RECORDINGS / version).glob("*/*.jsonl")
    assert record.agent_id == file.stem
    events, _ = _translate(_messages(file.read_bytes().splitlines()), parent=call, turn=3)
    assert {event.turn for event in events} == {3}
    assert [one.text for one in events if isinstance(one, Thought) and one.parent == call] == ["Reading."]
    starts = [one for one in events if isinstance(one, ToolStarted)]
    ends = [one for one in events if isinstance(one, ToolFinished)]
    assert [one.id for one in starts] == [one.id for one in ends]
    assert [(one.name, one.status, one.parent) for one in ends] == [
        ("read_file", "ok", call),
        ("complete_task", "ok", call),
    ]
    assert (starts[0].kind, starts[0].paths) == ("read", ("/recorded/repo/a.py",))
    assert ends[0].output == "x = 1\n"
    assert {one.role for one in events if isinstance(one, TokensUsed)} == {"subagent"}


@pytest.mark.parametrize("version", JOURNALS)
def test_a_recorded_cancelled_shell_has_no_exit_code(version: str) -> None:
    """A shell that was cancelled has an output, but no exit code."""
    _, records = _translate(_messages(recorded(version, "Sleep.")[0].read_bytes().splitlines()))
    (record,) = records.values()
    assert record.exit_code is None
    assert record.output is not None and record.output.startswith("Command was cancelled by user")


@pytest.mark.parametrize("file", all_files(), ids=lambda file: f"{file.parent.name}/{file.stem[-8:]}")
def test_every_recording_is_translated_once(file: Any) -> None:
    """Records that are read a second time, in any order, give no new events."""
    messages = _messages(file.read_bytes().splitlines())
    once, known = _translate(messages)
    twice, known_too = _translate([*messages, *messages, *reversed(messages)])
    assert [type(event) for event in twice] == [type(event) for event in once]
    assert known == known_too


def _parse_shell_report(output: str, display: Any = None) -> tuple[str | None, int | None]:
    part = {"functionResponse": {"response": {"output": output}}}
    shown = msgspec.Raw(json.dumps(display).encode())
    record = tool_record_of(
        StoredToolCall(id="1", name="run_shell_command", result=[part], status="success", shown=shown)
    )
    assert record is not None
    return record.output, record.exit_code


_GROUP = "\nProcess Group PGID: 7"


@pytest.mark.parametrize(
    ("report", "output", "code"),
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
def test_the_report_of_a_shell(report: str, output: str, code: int | None) -> None:
    """The output of a shell is found unchanged in the CLI's report. The exit code is known if the
    command has ended."""
    assert _parse_shell_report(report) == (output, code)


def test_an_output_that_looks_like_the_report() -> None:
    """If an output ends like the CLI's own lines about it, the text that the CLI displays decides.
    Without that text, the last lines are taken as the CLI's."""
    report = "Output: a line\nExit Code: 7" + _GROUP
    assert _parse_shell_report(report, "a line\nExit Code: 7") == ("a line\nExit Code: 7", 0)
    assert _parse_shell_report(report, "a line") == ("a line", 7)
    assert _parse_shell_report(report, [[{"text": "a line"}]]) == ("a line", 7)


def test_a_long_output_is_parsed_in_time() -> None:
    """A megabyte of lines that look like the end of the CLI's report is parsed without loss."""
    lines = "\nError: x\nExit Code: 1\nSignal: 9" * 30_000
    assert _parse_shell_report(f"Output: {lines}\nlast" + _GROUP) == (f"{lines}\nlast", 0)


def test_while_a_tool_runs_nothing_is_known() -> None:
    """A call without a valid result gives no record, unless its status is `error` or `cancelled`."""
    assert tool_record_of(StoredToolCall(id="1", name="x", status="executing")) is None
    assert (
        tool_record_of(StoredToolCall(id="1", name="x", result=[3, {"text": "x"}], status="success")) is None
    )
    assert tool_record_of(StoredToolCall(id="1", name="x", status="error")) == ToolRecord(input={})
    assert tool_record_of(StoredToolCall(id="1", name="x", status="cancelled")) == ToolRecord(
        status="cancelled", input={}
    )


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
    """`changes` has the diff that the CLI displays, and is empty without a valid diff."""
    part = {"functionResponse": {"response": {"output": "ok"}}}
    shown = msgspec.Raw(json.dumps(display).encode())
    record = tool_record_of(StoredToolCall(id="1", name="replace", result=[part], shown=shown))
    assert record is not None and record.changes == changes


def _finished(status: Any = "ok", **fields: Any) -> ToolFinished:
    return ToolFinished(**_WHERE, id="1", name="x", input=None, status=status, **fields)


def test_journal_and_stream_are_merged() -> None:
    """The journal's output, exit code and changes replace those of the stream. A denied call and
    the stream's error message stay."""
    record = ToolRecord(output="true", error="why", exit_code=3, changes=(Change("a", "edited"),))
    merged = with_tool_record(_finished(output="short", duration_ms=5), record)
    assert (merged.output, merged.error, merged.exit_code, merged.duration_ms) == ("true", None, 3, 5)
    assert merged.changes == record.changes
    denied = _finished("denied", error="by a rule")
    assert with_tool_record(denied, record) == denied
    assert with_tool_record(denied, ToolRecord(input={"a": 1})) == msgspec.structs.replace(
        denied, input={"a": 1}
    )
    assert with_tool_record(_finished("failed", error="from the stream"), record).error == "from the stream"
    assert with_tool_record(_finished("failed"), record).error == "why"
    assert with_tool_record(_finished(output="short"), ToolRecord(status="cancelled")).status == "cancelled"
    assert with_tool_record(_finished(output="short"), ToolRecord()).output == "short"


def test_secrets_are_masked_but_fixed_words_stay() -> None:
    """Secrets are masked in output, error, path, diff, thought and arguments, but not in a status,
    kind or id with the same text."""
    secret = "hunter2hunter2"
    part = {"functionResponse": {"response": {"output": f"a {secret}", "error": secret}}}
    shown = msgspec.Raw(
        json.dumps({"fileDiff": f"+{secret}", "filePath": f"/{secret}", "isNewFile": True}).encode()
    )
    call = StoredToolCall(
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
    assert isinstance(message, StoredMessage)
    message = msgspec.structs.replace(message, tool_calls=[call])
    events, records = _translate([message], (secret, "cancelled", "created"), parent="p")
    record = records["t-cancelled"]
    assert (record.output, record.error, record.status, record.agent_id) == (
        "a ***",
        "***",
        "cancelled",
        "cancelled",
    )
    assert record.changes == (Change("/***", "created", "+***"),)
    assert secret not in repr(events)
    assert [one.input for one in events if isinstance(one, ToolFinished)] == [{"x": ["***"]}]


@pytest.mark.parametrize("stamp", ["", "soon", "0001-01-01T00:00:00", "99999-01-01T00:00:00Z"])
def test_an_invalid_time(stamp: str) -> None:
    """`at_of` never raises: an invalid time gives 0, and a time before 1970 a negative number."""
    assert at_of(stamp) <= 0
