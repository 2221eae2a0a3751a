"""Tests of recordings: the kind of a recorded file, and its events."""

from __future__ import annotations

import os
from io import BufferedReader, BytesIO

import pytest

from geminids.events.model import Event, encode_event
from geminids.run.recordings.load import Kind, RecordedRun, kind_of_line, open_recording
from random_events import RECORDED, RECORDINGS, recorded
from recordings import all_files


def _open(content: bytes) -> RecordedRun:
    return open_recording(BufferedReader(BytesIO(content)))


def _events(recording: RecordedRun) -> list[Event]:
    return [event for batch in recording.batches() for event in batch]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            b'{"type":"notice","at":1,"seq":0,"attempt":1,"turn":1,"level":"info","code":"x","message":"y"}',
            "events",
        ),
        (b'{"type":"init","timestamp":"","session_id":"s1","model":"auto"}', "stream-json"),
        (b'\xef\xbb\xbf{"type":"result","status":"success"}', "stream-json"),
        (b'Loaded. {"type":"message","role":"user","content":"x"}', None),
        (b'{"sessionId":"s1","projectHash":"x"}', "session"),
        (b'{"$set":{"summary":"x"}}', "session"),
        (b'{"id":"1","timestamp":"","type":"user","content":""}', "session"),
        (b"{", "session"),
        (b'{"type":"unheard of"}', None),
        (b'{"a":1}', None),
        (b"{oops", None),
        (b"[]", None),
        (b"", None),
    ],
)
def test_a_line_identifies_the_kind(line: bytes, kind: Kind | None) -> None:
    """One line identifies the kind of a recording; a line that could be in any file gives None."""
    assert kind_of_line(line) == kind


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_events(name: str) -> None:
    """A file of events is read back as the same events."""
    recording = _open((RECORDINGS / f"{name}.jsonl").read_bytes())
    assert recording.kind == "events"
    assert _events(recording) == recorded(name)
    assert recording.left_out == []


def test_every_session_file_is_recognised() -> None:
    """The session files of every release are recognised as sessions."""
    for file in all_files():
        if "acp" not in file.parts:
            assert _open(file.read_bytes()).kind == "session", file


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{\n  "session_id": "s1",\n  "response": "hi"\n}\n', "report"),
        (b'Loaded.\n{\n  "error": {"type": "Error", "message": "no"}\n}\n', "report"),
        (b'{"session_id":"s1","response":"hi","stats":{}}', "report"),
        (b'{\n  "sessionId": "s1",\n  "messages": []\n}\n', "session"),
        (b'{\n  "name": "a package"\n}\n', None),
        (b"{", "session"),
    ],
)
def test_a_json_document_is_recognised(content: bytes, kind: Kind | None) -> None:
    """A JSON document over several lines is recognised as a report, as an old session file, or as
    neither, even if it arrives in pieces."""
    assert _open(content).kind == kind

    class Slow(BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(2)

    recording = open_recording(Slow(content))
    assert recording.kind == kind
    assert b"".join(recording.blocks) == content


@pytest.mark.parametrize("name", ["plain", "tools"])
def test_a_byte_order_mark_is_ignored(name: str) -> None:
    """A byte order mark is ignored, and no line is lost."""
    recording = _open(b"\xef\xbb\xbf" + (RECORDINGS / f"{name}.jsonl").read_bytes())
    assert _events(recording) == recorded(name)
    assert recording.left_out == []


def test_noise_before_the_first_line() -> None:
    """A few lines of noise before the recording are skipped.

    After too many, or without any line, the kind is None.
    """
    line = b'{"type":"init","session_id":"s1"}\n'
    assert _open(b"noise\n" * 5 + line).kind == "stream-json"
    assert _open(b"noise\n" * 500 + line).kind is None
    assert _open(b"").kind is None


def test_invalid_lines_are_skipped() -> None:
    """Invalid lines are skipped, and their numbers are in `left_out`.

    The last line of a file may be cut off.
    """
    first, *_, last = recorded("plain")
    content = b"\n".join((encode_event(first), b"{oops", b"", encode_event(last), encode_event(last)[:40]))
    recording = _open(content)
    assert _events(recording) == [first, last]
    assert recording.left_out == [2, 5]


def test_events_of_a_pipe_arrive_at_once() -> None:
    """Each complete line of a pipe gives its event before the pipe is closed."""
    first, second, *_ = recorded("plain")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as sink:
        sink.write(encode_event(first) + b"\n" + encode_event(second)[:20])
        batches = open_recording(source).batches()
        assert next(batches) == [first]
        sink.write(encode_event(second)[20:25])
        sink.write(encode_event(second)[25:] + b"\n")
        assert next(batches) == [second]
