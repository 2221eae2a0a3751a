"""All that is still in the bytes comes back, as a new session."""

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
from geminids.sessions.repair.salvage import Salvaged, salvage

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
def test_every_message_in_the_bytes_comes_back(
    shelf: Any, damage: Callable[[bytes], bytes], expected: list[str]
) -> None:
    """In order, in a new session that can be resumed; the damaged file stays as it is."""
    file = shelf.journal(shelf.chats(), A, turns=3)
    data = damage(file.read_bytes())
    file.write_bytes(data)
    report = sessions.rescue(A, shelf.project, **shelf.where)
    made = sessions.load(report.session_id, shelf.project, **shelf.where)
    ids = [message.id for message in made.messages if message.is_resumable]
    assert ids == expected
    assert made.info.resumable is True
    assert report.recovered == len(made.messages)
    assert file.read_bytes() == data
    assert report.session_id != A
    assert bool(report.lost) is (damage in (_cut, _broken_line, _torn_then_more))
    assert report.partial == (("g2",) if damage is _cut else ())


def test_what_a_cut_message_still_says_comes_back(shelf: Any) -> None:
    """As far as it goes, and the report names it."""
    file = shelf.journal(shelf.chats(), A, turns=3)
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"answer 2"') + 7])
    report = sessions.rescue(A, shelf.project, **shelf.where)
    made = sessions.load(report.session_id, shelf.project, **shelf.where)
    assert made.messages[-1].text == "answer"
    assert report.partial == ("g2",)
    assert report.lost[0].offset == data.index(b'{"id":"g2"')


@pytest.mark.parametrize("where", ["end", "middle", "start"])
def test_an_indented_file_of_an_old_release(shelf: Any, where: str) -> None:
    """Cut off, broken in the middle, or without its beginning: it is one JSON object, and still read."""
    file = shelf.legacy(shelf.chats(), A, turns=3)
    data = file.read_bytes()
    at = data.index(b'"answer 1"')
    damaged = {
        "end": data[: data.index(b'"answer 2"') + 4],
        "middle": data[:at] + b"\xff\x00\x00" + data[at + 3 :],
        "start": data[data.index(b'"u0"') :],
    }[where]
    file.write_bytes(damaged)
    report = sessions.rescue(A, shelf.project, **shelf.where)
    assert Path(report.file).suffix == ".json"
    made = sessions.load(report.session_id, shelf.project, **shelf.where)
    lost = {"end": [], "middle": ["g1"], "start": ["u0"]}[where]
    assert [message.id for message in made.messages] == [one for one in ALL if one not in lost]


def test_the_fullest_form_of_a_message_is_kept(shelf: Any) -> None:
    """A checkpoint of 0.61.0 has neither thoughts nor tokens; the record of the message has."""
    file = shelf.journal(shelf.chats(), A)
    poor = {"id": "g0", "type": "gemini", "content": [{"text": "answer 0"}], "timestamp": ""}
    new = {"id": "n", "type": "gemini", "content": [{"text": "from the checkpoint"}], "timestamp": ""}
    file.write_bytes(file.read_bytes() + json.dumps({"$set": {"messages": [poor, new]}}).encode() + b"\n")
    report = sessions.rescue(A, shelf.project, **shelf.where)
    made = {
        message.id: message
        for message in sessions.load(report.session_id, shelf.project, **shelf.where).messages
    }
    assert made["g0"].tokens is not None
    assert made["n"].text == "from the checkpoint"
    assert report.brought_back == 2  # the context and the prompt, which the checkpoint has not


def test_what_the_user_took_back_stays_away_unless_asked_for(shelf: Any) -> None:
    """A rewind to a message that never was is damage, and takes nothing back."""
    file = shelf.journal(shelf.chats(), A, turns=3)
    file.write_bytes(file.read_bytes() + b'{"$rewindTo":"u2"}\n{"$rewindTo":"nobody"}\n')
    kept = sessions.rescue(A, shelf.project, **shelf.where)
    assert (kept.recovered, kept.taken_back) == (5, 2)
    full = sessions.rescue(A, shelf.project, rewound=True, **shelf.where)
    assert (full.recovered, full.taken_back) == (7, 0)


def test_all_files_of_the_session_are_read(shelf: Any) -> None:
    """Others with its id, and what the CLI has put aside as unreadable."""
    chats = shelf.chats()
    file = shelf.journal(chats, A, turns=3)
    stub = shelf.journal(chats, A, turns=0)
    whole = stub.with_name("session-2026-10-20T10-00-aaaaaaaa.jsonl")
    stub.rename(whole)
    shelf.journal(chats, A, turns=1)
    aside = file.with_name(f"{file.name}.unreadable-1790000000000")
    shelf.journal(chats, A, turns=3).rename(aside)
    shelf.journal(chats, A, turns=1)
    report = sessions.rescue(A, shelf.project, **shelf.where)
    made = sessions.load(report.session_id, shelf.project, **shelf.where)
    assert [message.id for message in made.messages if message.is_resumable] == ALL
    assert set(report.sources) == {str(file), str(whole), str(aside)}


def test_a_file_from_elsewhere_is_put_into_a_project(shelf: Any, tmp_path: Path) -> None:
    """Which must be said, and must have sessions."""
    shelf.journal(shelf.chats(), "other-session")
    copy = tmp_path / "saved.jsonl"
    copy.write_bytes(_cut(shelf.journal(tmp_path, A, turns=3).read_bytes()))
    with pytest.raises(SessionError, match="not in a session folder of a project"):
        sessions.rescue(copy, **shelf.where)
    with pytest.raises(SessionError, match="no session folder yet"):
        sessions.rescue(copy, "/elsewhere", **shelf.where)
    report = sessions.rescue(copy, shelf.project, **shelf.where)
    assert sessions.exists(report.session_id, shelf.project, **shelf.where)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 1000, b"hello\n" * 100, b'{"sessionId":"x","projectHash":"y"}\n']
)
def test_where_nothing_is_left_nothing_is_made(shelf: Any, data: bytes) -> None:
    """One clear error."""
    file = shelf.chats() / f"session-2026-10-01T10-00-{A[:8]}.jsonl"
    file.write_bytes(data)
    with pytest.raises(SessionDamaged, match="contains no message that can be resumed"):
        sessions.rescue(file, **shelf.where)
    assert list(shelf.chats().iterdir()) == [file]


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
def test_a_megabyte_of_anything_takes_linear_time(piece: bytes) -> None:
    """No bytes make the search quadratic."""
    data = piece * (1_000_000 // len(piece))
    began = time.process_time()
    salvage(data, Salvaged())
    assert time.process_time() - began < 20


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


def _mutated(data: bytes, mutations: list[tuple[str, float, int, bytes]]) -> bytes:
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
def test_no_file_raises_anything_but_what_is_said(shelf: Any, kind: str, mutations: Any) -> None:
    """`find` nothing at all; `load`, `fork` and `rescue` a SessionError; what is rescued can be resumed."""
    for old in shelf.chats().iterdir():
        old.unlink()
    file = getattr(shelf, kind)(shelf.chats(), A, turns=3)
    file.write_bytes(_mutated(file.read_bytes(), mutations))
    (info,) = sessions.find(None, **shelf.where, subagents=True)
    for act in (sessions.load, sessions.fork, sessions.rescue):
        try:
            act(file, **shelf.where)
        except SessionError:
            pass
    try:
        report = sessions.rescue(file, **shelf.where)
    except SessionError:
        assert info.resumable is not True
    else:
        assert sessions.exists(report.session_id, shelf.project, **shelf.where)
