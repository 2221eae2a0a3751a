"""Session files of any size: what is streamed is what is replayed."""

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
from geminids.gemini.protocol.journal.records import Message
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
    _ID.map(lambda found: {"$rewindTo": found}),
    st.lists(_MESSAGE | st.integers() | st.just({"id": 1}), max_size=3).map(
        lambda m: {"$set": {"messages": m}}
    ),
    st.fixed_dictionaries({"$set": st.dictionaries(st.sampled_from(["summary", "kind"]), _TEXT | st.none())}),
    st.lists(_MESSAGE, max_size=2).map(lambda found: {**HEADER, "messages": found}),
    st.just(HEADER),
)
_LINE = _RECORD.flatmap(
    lambda record: st.booleans().map(lambda ascii: json.dumps(record, ensure_ascii=ascii))
).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=12)
_SMALL = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_alike(file: Path) -> None:
    """Both readers give the same, and neither raises."""
    whole = replay(file.read_bytes().split(b"\n"))
    journal = open_journal(file)
    assert journal.header == whole.header
    assert _said(journal.messages) == _said(whole.messages)
    assert _said(open_journal(file).messages) == _said(whole.messages)


def _said(messages: Iterable[Message]) -> list[Any]:
    """All there is in messages, however their JSON is written (`\\u007f` or as it is)."""
    plain = {"raw": b"", "tool_calls": []}
    return [
        (
            msgspec.structs.replace(one, **plain),
            [call.result_display for call in one.tool_calls],
            one.original,
        )
        for one in messages
    ]


@_SMALL
@given(st.lists(_LINE, max_size=12))
def test_any_sequence_of_records(tmp_path: Path, records: list[bytes]) -> None:
    """Whatever the lines do to the conversation, they do it in both readers."""
    file = tmp_path / "session.jsonl"
    file.write_bytes(b"\n".join(records))
    assert_alike(file)


@_SMALL
@given(st.lists(_MESSAGE | st.integers(), max_size=4), st.sampled_from([None, 2, 4]), st.booleans())
def test_any_legacy_file(tmp_path: Path, messages: list[Any], indent: int | None, cut: bool) -> None:
    """One JSON object, indented or not, whole or cut."""
    file = tmp_path / "session.json"
    text = json.dumps({**HEADER, "messages": messages, "summary": "x"}, indent=indent)
    file.write_text(text[: -len(text) // 3] if cut else text, errors="surrogatepass")
    assert_alike(file)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    """A session file as a crash, a disk or an editor may leave it."""
    lines = data.split(b"\n")
    at, to = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    how = rng.randrange(7)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + data[to:]
    if how == 2:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if how == 3:
        rng.shuffle(lines)
        return b"\n".join(lines)
    if how == 4:
        return data.replace(
            *rng.choice([(b'"', b"'"), (b"[", b"{"), (b": ", b":"), (b"\n", b"\r\n"), (b"}", b"")])
        )
    if how == 5:
        old = rng.choice([b'"type":"user"', b'"content":""', b'"thoughts":[]', b'"args":{', b'"messages":['])
        return data.replace(
            old, rng.choice([b'"type":7', b'"content":{}', b'"thoughts":3', b'"args":[{', b'"messages":{['])
        )
    return data[at:to] + data


@settings(_SMALL, max_examples=200)
@given(st.integers(0, 2**32))
def test_mutated_files(tmp_path: Path, seed: int) -> None:
    """Cut, spliced, flipped, shuffled, of other types: read as far as it goes, alike, and nothing raises."""
    rng = random.Random(seed)
    data = rng.choice(all_files()).read_bytes()
    for _ in range(rng.randrange(1, 4)):
        data = _mutated(data, rng) or b"\n"
    file = tmp_path / "session.jsonl"
    file.write_bytes(data)
    assert_alike(file)
    json.dumps([claude.as_dict(message) for message in claude.messages(open_journal(file))])
    assert all(line.endswith(b"}\n") for line in transcript(open_journal(file)))


def test_recorded_files() -> None:
    """Every generation."""
    for file in all_files():
        assert_alike(file)
        assert open_journal(file).header is not None, file


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """An OSError, as of any file."""
    with pytest.raises(FileNotFoundError):
        open_journal(tmp_path / "none.jsonl")


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """What comes after the first pass is not in this reading, and does no harm."""
    file = tmp_path / "session.jsonl"
    one, two = (json.dumps({"id": name, "type": "user", "content": name}) + "\n" for name in "ab")
    file.write_text(json.dumps(HEADER) + "\n" + one)
    journal = open_journal(file)
    with file.open("a") as more:
        more.write(two + '{"$rewindTo":"a"}\n')
    assert [message.text for message in journal.messages] == ["a"]
    assert [message.text for message in open_journal(file).messages] == []


# VmHWM, and not ru_maxrss: that begins with what the process has that forked us, and would hide any growth.
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
def test_memory_is_that_of_the_largest_message(tmp_path: Path, shape: str) -> None:
    """80 MB with messages of 1 MB at most are read in a few MB; a checkpoint is one record, held whole, twice."""
    file = tmp_path / "session.jsonl"
    made = [{"id": f"m{n}", "type": "user", "content": "x" * 1_000_000} for n in range(80)]
    with file.open("w") as out:
        if shape == "legacy":
            json.dump({**HEADER, "messages": made}, out, indent=2)
        elif shape == "checkpoint":
            out.write(
                json.dumps(HEADER) + "\n" + json.dumps({"$set": {"messages": made}}, separators=(",", ":"))
            )
        else:
            out.write("".join(json.dumps(record) + "\n" for record in (HEADER, *made, *made[:40])))
    done = subprocess.run([sys.executable, "-c", _MEASURE, file], capture_output=True, text=True, check=True)
    count, megabytes = map(int, done.stdout.split())
    assert count == 80
    assert megabytes < (2 * 80 + 20 if shape == "checkpoint" else 20)


@pytest.mark.parametrize("version", ["0.41.2", "0.61.0"])
def test_the_files_of_subagents(version: str) -> None:
    """They lie in a folder named like the session, one file an agent, each with its call's `agentId` as id."""
    file, told = recorded(version, "Ask an agent.")
    assert told.header is not None
    found = subagent_files(file, told.header.session_id)
    ids = [call.agent_id for message in told.messages for call in message.tool_calls]
    assert [open_journal(one).header.session_id for one in found] == ids  # type: ignore[union-attr]
    assert [open_journal(one).header.kind for one in found] == ["subagent"]  # type: ignore[union-attr]


def test_a_session_without_subagents(tmp_path: Path) -> None:
    """It has none, whatever its id looks like."""
    assert subagent_files(tmp_path / "session.jsonl", "../..") == []
    assert subagent_files(tmp_path / "session.jsonl", "") == []
