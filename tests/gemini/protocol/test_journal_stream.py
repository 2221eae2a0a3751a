"""`open_journal` streams session files of any size and gives the same messages as `replay`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminids.dialects import claude
from geminids.dialects.claude.session_file import transcript
from geminids.gemini.protocol.journal.records import StoredMessage
from geminids.gemini.protocol.journal.replay import replay
from geminids.gemini.protocol.journal.stream import open_journal, subagent_files
from recordings import all_files, recorded

HEADER = {"sessionId": "s", "projectHash": "p"}
_ID = st.sampled_from(["a", "b", "c", "d"])
_TEXT = st.text(max_size=6) | st.sampled_from(["\u2028", "\ud800", "é", '"$rewindTo"', "\\"])
_CONTENT = _TEXT | st.lists(st.fixed_dictionaries({"text": _TEXT}), max_size=2) | st.none()
_MESSAGE = st.fixed_dictionaries(
    {"id": _ID, "type": st.sampled_from(["user", "gemini", "info"]), "content": _CONTENT},
    optional={"tokens": st.integers(), "thoughts": st.lists(st.integers(), max_size=1), "$raw": _TEXT},
)
_RECORD = st.one_of(
    _MESSAGE,
    _ID.map(lambda message_id: {"$rewindTo": message_id}),
    st.lists(_MESSAGE | st.integers() | st.just({"id": 1}), max_size=3).map(
        lambda m: {"$set": {"messages": m}}
    ),
    st.fixed_dictionaries({"$set": st.dictionaries(st.sampled_from(["summary", "kind"]), _TEXT | st.none())}),
    st.lists(_MESSAGE, max_size=2).map(lambda messages: {**HEADER, "messages": messages}),
    st.just(HEADER),
)
_LINE = _RECORD.flatmap(
    lambda record: st.booleans().map(lambda ascii: json.dumps(record, ensure_ascii=ascii))
).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=12)
_SMALL = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_readers_agree(file: Path) -> None:
    """Assert that both readers return the same header and messages."""
    whole = replay(file.read_bytes().split(b"\n"))
    journal = open_journal(file)
    assert journal.header == whole.header
    assert _contents(journal.messages) == _contents(whole.messages)
    assert _contents(open_journal(file).messages) == _contents(whole.messages)


def _contents(messages: Iterable[StoredMessage]) -> list[Any]:
    """The contents of messages, independent of how their JSON is written (`\\u007f` or the
    character).
    """
    plain = {"raw": b"", "tool_calls": []}
    return [
        (
            msgspec.structs.replace(message, **plain),
            [call.result_display for call in message.tool_calls],
            message.original,
        )
        for message in messages
    ]


@_SMALL
@given(st.lists(_LINE, max_size=12))
def test_any_sequence_of_records(tmp_path: Path, records: list[bytes]) -> None:
    """Both readers return the same for any sequence of records."""
    file = tmp_path / "session.jsonl"
    file.write_bytes(b"\n".join(records))
    assert_readers_agree(file)


@_SMALL
@given(st.lists(_MESSAGE | st.integers(), max_size=4), st.sampled_from([None, 2, 4]), st.booleans())
def test_any_legacy_file(tmp_path: Path, messages: list[Any], indent: int | None, cut: bool) -> None:
    """Both readers return the same for a legacy file, indented or not, whole or cut."""
    file = tmp_path / "session.json"
    text = json.dumps({**HEADER, "messages": messages, "summary": "x"}, indent=indent)
    file.write_text(text[: -len(text) // 3] if cut else text, errors="surrogatepass")
    assert_readers_agree(file)


def _damage(data: bytes, rng: random.Random) -> bytes:
    """Damage a session file as a crash, a disk or an editor may do."""
    lines = data.split(b"\n")
    at, to = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    kind = rng.randrange(7)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 3:
        rng.shuffle(lines)
        return b"\n".join(lines)
    if kind == 4:
        return data.replace(
            *rng.choice([(b'"', b"'"), (b"[", b"{"), (b": ", b":"), (b"\n", b"\r\n"), (b"}", b"")])
        )
    if kind == 5:
        old = rng.choice([b'"type":"user"', b'"content":""', b'"thoughts":[]', b'"args":{', b'"messages":['])
        return data.replace(
            old, rng.choice([b'"type":7', b'"content":{}', b'"thoughts":3', b'"args":[{', b'"messages":{['])
        )
    return data[at:to] + data


@settings(_SMALL, max_examples=200)
@given(st.integers(0, 2**32))
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    """Both readers return the same for a damaged file, and the Claude formats can still be written."""
    rng = random.Random(seed)
    data = rng.choice(all_files()).read_bytes()
    for _ in range(rng.randrange(1, 4)):
        data = _damage(data, rng) or b"\n"
    file = tmp_path / "session.jsonl"
    file.write_bytes(data)
    assert_readers_agree(file)
    json.dumps([claude.as_dict(message) for message in claude.messages(open_journal(file))])
    assert all(line.endswith(b"}\n") for line in transcript(open_journal(file)))


def test_recorded_files() -> None:
    """Both readers return the same for the recorded files of every format."""
    for file in all_files():
        assert_readers_agree(file)
        assert open_journal(file).header is not None, file


def test_a_missing_file(tmp_path: Path) -> None:
    """A missing file raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        open_journal(tmp_path / "none.jsonl")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """Lines that are added after `open_journal` are not part of that reading."""
    file = tmp_path / "session.jsonl"
    first, second = (json.dumps({"id": name, "type": "user", "content": name}) + "\n" for name in "ab")
    file.write_text(json.dumps(HEADER) + "\n" + first)
    journal = open_journal(file)
    with file.open("a") as more:
        more.write(second + '{"$rewindTo":"a"}\n')
    assert [message.text for message in journal.messages] == ["a"]
    assert [message.text for message in open_journal(file).messages] == []


# VmHWM, not ru_maxrss: that starts with the memory of the parent process and would hide any growth.
_MEASURE = """
import pathlib, re, sys
from geminids.gemini.protocol.journal.stream import open_journal
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
file = pathlib.Path(sys.argv[1])
before = peak()
count = sum(1 for _ in open_journal(file).messages)
print(count, (peak() - before) // 1024)
"""


@pytest.mark.parametrize(
    "shape",
    [
        "journal",
        pytest.param("legacy", marks=pytest.mark.deep),
        pytest.param("checkpoint", marks=pytest.mark.deep),
    ],
)
def test_memory_is_bounded(tmp_path: Path, shape: str) -> None:
    """A file of 80 MB is read with less than 20 MB of memory.

    A checkpoint is one record and may need twice its size.
    """
    file = tmp_path / "session.jsonl"
    messages = [{"id": f"m{n}", "type": "user", "content": "x" * 1_000_000} for n in range(80)]
    with file.open("w") as out:
        if shape == "legacy":
            json.dump({**HEADER, "messages": messages}, out, indent=2)
        elif shape == "checkpoint":
            out.write(
                json.dumps(HEADER)
                + "\n"
                + json.dumps({"$set": {"messages": messages}}, separators=(",", ":"))
            )
        else:
            out.write("".join(json.dumps(record) + "\n" for record in (HEADER, *messages, *messages[:40])))
    done = subprocess.run([sys.executable, "-c", _MEASURE, file], capture_output=True, text=True, check=True)
    count, megabytes = map(int, done.stdout.split())
    assert count == 80
    assert megabytes < (2 * 80 + 20 if shape == "checkpoint" else 20)


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_the_files_of_subagents(version: str) -> None:
    """Files of subagents are in a folder named like the session.

    The id of each is the `agentId` of its call.
    """
    file, journal = recorded(version, "Ask an agent.")
    assert journal.header is not None
    files = subagent_files(file, journal.header.session_id)
    ids = [call.agent_id for message in journal.messages for call in message.tool_calls]
    assert [open_journal(agent_file).header.session_id for agent_file in files] == ids  # type: ignore[union-attr]
    assert [open_journal(agent_file).header.kind for agent_file in files] == ["subagent"]  # type: ignore[union-attr]


def test_a_session_without_subagents(tmp_path: Path) -> None:
    """A session without a folder has no subagents, whatever its id."""
    assert subagent_files(tmp_path / "session.jsonl", "../..") == []
    assert subagent_files(tmp_path / "session.jsonl", "") == []
