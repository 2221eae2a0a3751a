"""`sessions.rescue` recovers the messages of a damaged file as a new session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminids import sessions
from geminids.errors import SessionDamaged, SessionError
from geminids.sessions.repair.read_damaged import Salvaged, read_damaged

A = "aaaaaaaa-7033-438d-a978-a361d8031f47"
ALL = ["u0", "g0", "u1", "g1", "u2", "g2"]


def _cut(data: bytes) -> bytes:
    return data[: data.rindex(b'"answer 2"') + 5]


def _broken_line(data: bytes) -> bytes:
    return data.replace(b'{"id":"g1"', b'\x00\xff{"id":;;"g1"')


def _no_header(data: bytes) -> bytes:
    return data.partition(b"\n")[2]


def _loaded_on_acp(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return data + lines[0] + lines[1]


def _empty_checkpoint(data: bytes) -> bytes:
    return data + b'{"$set":{"messages":[]}}\n'


def _glued(data: bytes) -> bytes:
    return data.replace(b'}\n{"id":"g1"', b'}{"id":"g1"').replace(b'}\n{"id":"u2"', b'}{"id":"u2"')


def _torn_then_more(data: bytes) -> bytes:
    at = data.index(b'{"id":"g1"')
    end = data.index(b"\n", at)
    return data[: at + 60] + data[end + 1 :]


def _zeros(data: bytes) -> bytes:
    at = data.index(b'{"id":"g1"')
    return data[:at] + b"\0" * 4096 + data[at:]


DAMAGES: list[tuple[Callable[[bytes], bytes], list[str]]] = [
    (_cut, ALL),
    (_broken_line, ["u0", "g0", "u1", "u2", "g2"]),
    (_no_header, ALL),
    (_loaded_on_acp, ALL),
    (_empty_checkpoint, ALL),
    (_glued, ALL),
    (_torn_then_more, ["u0", "g0", "u1", "u2", "g2"]),
    (_zeros, ALL),
]


@pytest.mark.parametrize(("damage", "expected"), DAMAGES)
def test_every_readable_message_is_recovered(
    session_files: Any, damage: Callable[[bytes], bytes], expected: list[str]
) -> None:
    """Every message that can be read is recovered in order, in a new session that can be resumed.

    The damaged file does not change.
    """
    file = session_files.journal(session_files.chats(), A, turns=3)
    data = damage(file.read_bytes())
    file.write_bytes(data)
    report = sessions.rescue(A, session_files.project, **session_files.where)
    rescued = sessions.load(report.session_id, session_files.project, **session_files.where)
    ids = [message.id for message in rescued.messages if message.is_resumable]
    assert ids == expected
    assert rescued.info.resumable is True
    assert report.recovered == len(rescued.messages)
    assert file.read_bytes() == data
    assert report.session_id != A
    assert bool(report.lost) is (damage in (_cut, _broken_line, _torn_then_more))
    assert report.partial == (("g2",) if damage is _cut else ())


def test_a_cut_message_is_recovered_in_part(session_files: Any) -> None:
    """The beginning of a cut message is recovered, and the report names the message as partial."""
    file = session_files.journal(session_files.chats(), A, turns=3)
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"answer 2"') + 7])
    report = sessions.rescue(A, session_files.project, **session_files.where)
    rescued = sessions.load(report.session_id, session_files.project, **session_files.where)
    assert rescued.messages[-1].text == "answer"
    assert report.partial == ("g2",)
    assert report.lost[0].offset == data.index(b'{"id":"g2"')


@pytest.mark.parametrize("where", ["end", "middle", "start"])
def test_a_damaged_legacy_file(session_files: Any, where: str) -> None:
    """A legacy file (one JSON object) is recovered if it is cut off, broken in the middle or
    without its beginning.
    """
    file = session_files.legacy(session_files.chats(), A, turns=3)
    data = file.read_bytes()
    at = data.index(b'"answer 1"')
    damaged = {
        "end": data[: data.index(b'"answer 2"') + 4],
        "middle": data[:at] + b"\xff\x00\x00" + data[at + 3 :],
        "start": data[data.index(b'"u0"') :],
    }[where]
    file.write_bytes(damaged)
    report = sessions.rescue(A, session_files.project, **session_files.where)
    assert Path(report.file).suffix == ".json"
    rescued = sessions.load(report.session_id, session_files.project, **session_files.where)
    lost = {"end": [], "middle": ["g1"], "start": ["u0"]}[where]
    assert [message.id for message in rescued.messages] == [
        message_id for message_id in ALL if message_id not in lost
    ]


def test_the_fullest_form_of_a_message_is_kept(session_files: Any) -> None:
    """Of two versions of a message, the one with tokens is kept.

    Messages that a checkpoint dropped come back.
    """
    file = session_files.journal(session_files.chats(), A)
    poor = {"id": "g0", "type": "gemini", "content": [{"text": "answer 0"}], "timestamp": ""}
    new = {"id": "n", "type": "gemini", "content": [{"text": "from the checkpoint"}], "timestamp": ""}
    file.write_bytes(file.read_bytes() + json.dumps({"$set": {"messages": [poor, new]}}).encode() + b"\n")
    report = sessions.rescue(A, session_files.project, **session_files.where)
    rescued = {
        message.id: message
        for message in sessions.load(report.session_id, session_files.project, **session_files.where).messages
    }
    assert rescued["g0"].tokens is not None
    assert rescued["n"].text == "from the checkpoint"
    assert report.brought_back == 2  # the context and the prompt, which the checkpoint does not have


def test_rewound_messages_are_recovered_on_request(session_files: Any) -> None:
    """Rewound messages are recovered only with `rewound=True`.

    A rewind to an unknown message has no effect.
    """
    file = session_files.journal(session_files.chats(), A, turns=3)
    file.write_bytes(file.read_bytes() + b'{"$rewindTo":"u2"}\n{"$rewindTo":"nobody"}\n')
    without_rewound = sessions.rescue(A, session_files.project, **session_files.where)
    assert (without_rewound.recovered, without_rewound.taken_back) == (5, 2)
    with_rewound = sessions.rescue(A, session_files.project, rewound=True, **session_files.where)
    assert (with_rewound.recovered, with_rewound.taken_back) == (7, 0)


def test_all_files_of_the_session_are_read(session_files: Any) -> None:
    """All files of the session are read: those with its id, and those that the CLI renamed as
    unreadable.
    """
    chats = session_files.chats()
    file = session_files.journal(chats, A, turns=3)
    stub = session_files.journal(chats, A, turns=0)
    whole = stub.with_name("session-2026-10-20T10-00-aaaaaaaa.jsonl")
    stub.rename(whole)
    session_files.journal(chats, A, turns=1)
    unreadable = file.with_name(f"{file.name}.unreadable-1790000000000")
    session_files.journal(chats, A, turns=3).rename(unreadable)
    session_files.journal(chats, A, turns=1)
    report = sessions.rescue(A, session_files.project, **session_files.where)
    rescued = sessions.load(report.session_id, session_files.project, **session_files.where)
    assert [message.id for message in rescued.messages if message.is_resumable] == ALL
    assert set(report.sources) == {str(file), str(whole), str(unreadable)}


def test_a_file_from_elsewhere_is_put_into_a_project(session_files: Any, tmp_path: Path) -> None:
    """A file from outside is rescued into the given project, which must have a session folder."""
    session_files.journal(session_files.chats(), "other-session")
    copy = tmp_path / "saved.jsonl"
    copy.write_bytes(_cut(session_files.journal(tmp_path, A, turns=3).read_bytes()))
    with pytest.raises(SessionError, match="not in the session folder of a project"):
        sessions.rescue(copy, **session_files.where)
    with pytest.raises(SessionError, match="no session folder yet"):
        sessions.rescue(copy, "/elsewhere", **session_files.where)
    report = sessions.rescue(copy, session_files.project, **session_files.where)
    assert sessions.exists(report.session_id, session_files.project, **session_files.where)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 1000, b"hello\n" * 100, b'{"sessionId":"x","projectHash":"y"}\n']
)
def test_a_file_without_messages_is_an_error(session_files: Any, data: bytes) -> None:
    """A file without messages gives one clear error, and no session is created."""
    file = session_files.chats() / f"session-2026-10-01T10-00-{A[:8]}.jsonl"
    file.write_bytes(data)
    with pytest.raises(SessionDamaged, match="contains no prompt to the model"):
        sessions.rescue(file, **session_files.where)
    assert list(session_files.chats().iterdir()) == [file]


@pytest.mark.parametrize(
    "piece",
    [
        b'{"id":',
        b'{"id":"x","toolCalls":[{"id":"y"},',
        b"{",
        b'"',
        b'{"$set":{"messages":[',
        b"\\",
        b"\n",
        b'{"id":"a","type":"user","content":"b"}',
    ],
)
def test_reading_takes_linear_time(piece: bytes) -> None:
    """A megabyte of any repeated bytes is searched in less than 20 seconds: the search is not
    quadratic.
    """
    data = piece * (1_000_000 // len(piece))
    start = time.process_time()
    read_damaged(data, Salvaged())
    assert time.process_time() - start < 20


_MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "drop", "insert", "repeat", "flip"]),
        st.floats(0, 1),
        st.integers(1, 300),
        st.binary(max_size=8)
        | st.sampled_from(
            [
                b"\n",
                b'"',
                b"{",
                b"}",
                b'{"$rewindTo":"u0"}\n',
                b'{"$set":{"messages":[{}]}}\n',
                b'{"id":null}\n',
                b'{"sessionId":1,"projectHash":{}}\n',
            ]
        ),
    ),
    min_size=1,
    max_size=6,
)


def _mutate(data: bytes, mutations: list[tuple[str, float, int, bytes]]) -> bytes:
    for kind, where, size, piece in mutations:
        at = int(where * len(data))
        data = {
            "cut": data[:at],
            "drop": data[:at] + data[at + size :],
            "insert": data[:at] + piece + data[at:],
            "repeat": data[:at] + data[at : at + size] + data[at:],
            "flip": data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 3]) + data[at + 3 :],
        }[kind]
    return data


@pytest.mark.parametrize("kind", ["journal", "legacy"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=_MUTATIONS)
def test_no_file_raises_an_undocumented_error(session_files: Any, kind: str, mutations: Any) -> None:
    """For any damaged file, `find` raises nothing, and `load`, `fork` and `rescue` raise only
    SessionError.

    A rescued session can be resumed.
    """
    for old in session_files.chats().iterdir():
        old.unlink()
    file = getattr(session_files, kind)(session_files.chats(), A, turns=3)
    file.write_bytes(_mutate(file.read_bytes(), mutations))
    (info,) = sessions.find(None, **session_files.where, subagents=True)
    for operation in (sessions.load, sessions.fork, sessions.rescue):
        try:
            operation(file, **session_files.where)
        except SessionError:
            pass
    try:
        report = sessions.rescue(file, **session_files.where)
    except SessionError:
        assert info.resumable is not True
    else:
        assert sessions.exists(report.session_id, session_files.project, **session_files.where)
