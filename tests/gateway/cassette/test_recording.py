"""Tests of recording: answers are forwarded unchanged, and the cassette contains no secret."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_requests import (
    STREAM,
    FixedUpstream,
    body_text,
    collect_parts,
    make_body,
    make_request,
    tool_result_content,
    user_content,
)
from geminids.errors import GeminidsError
from geminids.gateway import Gateway, Reply
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gateway.cassette.lines import CassetteHeader
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.encode import sse
from geminids.gateway.script.scripted_upstream import Scripted
from geminids.gateway.upstream import Body, Cut, Hang, Head, Mismatch, Part, UpstreamFault

SECRET = "hunter2-hunter2"
EVENTS = Head(200, {"content-type": "text/event-stream"})


def record(
    path: Path,
    *parts: Part | Exception,
    body: Any = None,
    secrets: tuple[str, ...] = (),
) -> Any:
    """Record one exchange whose answer has these parts, and return it as read from the cassette."""
    recording = Recording(FixedUpstream(*parts), path, secrets=secrets)
    try:
        collect_parts(recording, make_request(make_body(user_content("hi")) if body is None else body))
    except (UpstreamFault, Mismatch):
        pass
    recording.close()
    (exchange,) = load_cassette(path).exchanges
    return exchange


def chunk(text: str, **part: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text, **part}]}}]}


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    """A second recording to the same file is refused until the first one is closed."""
    path = tmp_path / "c.jsonl"
    first = Recording(Scripted(), path)
    with pytest.raises(GeminidsError, match="another run or chat") as refused:
        Recording(Scripted(), path)
    assert refused.value.hint
    other = Recording(Scripted(), tmp_path / "other.jsonl")
    for recording in (first, other, Recording(Scripted(), tmp_path / "third.jsonl")):
        recording.close()
    Recording(Scripted(), path, overwrite=True).close()


def test_recording_through_a_gateway(tmp_path: Path) -> None:
    """The client gets the upstream's answer, and the cassette contains the request and the answer.
    Only its owner can read the file."""
    path = tmp_path / "c.jsonl"
    recording = Recording(Scripted([Reply(text=["a", "b"])]), path, header=CassetteHeader(model="flash"))
    with Gateway(recording) as gateway:
        data = json.dumps(make_body(user_content("hi"))).encode()
        with urllib.request.urlopen(gateway.url + STREAM, data=data) as response:
            answer = response.read()
    recording.close()
    cassette = load_cassette(path)
    assert b"".join(sse(event) for event in cassette.exchanges[0].answer.events or ()) == answer
    assert cassette.exchanges[0].body == make_body(user_content("hi"))
    assert (cassette.header.model, cassette.header.cli, bool(cassette.header.made)) == ("flash", None, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["c.jsonl"]


def test_release_is_read_from_the_user_agent(tmp_path: Path) -> None:
    """The cassette header gets the CLI release from the user agent and the model from the path."""
    record(tmp_path / "c", EVENTS)
    header = load_cassette(tmp_path / "c").header
    assert (header.cli, header.model) == ("0.61.0", "gemini-3.8-flash")


def test_only_harmless_headers_are_recorded(tmp_path: Path) -> None:
    """No request header is recorded, and of the answer only the content type and `retry-after`."""
    head = Head(
        429,
        {
            "content-type": "application/json",
            "retry-after": "7",
            "x-request-id": "abcdef",
            "set-cookie": "c=1",
        },
    )
    recording = Recording(FixedUpstream(head, Body(b'{"error":{}}')), tmp_path / "c")
    collect_parts(
        recording,
        make_request(make_body(user_content("hi")), STREAM + "&key=in-the-query", key="in-a-header"),
    )
    recording.close()
    text = (tmp_path / "c").read_text()
    assert not [
        word for word in ("in-a-header", "in-the-query", "GeminiCLI", "abcdef", "c=1") if word in text
    ]
    answer = load_cassette(tmp_path / "c").exchanges[0].answer
    assert (answer.status, answer.retry_after, answer.json) == (429, "7", {"error": {}})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((EVENTS, Body(sse({"a": 1}))), {"events": [{"a": 1}], "end": "whole"}),
        ((EVENTS, Body(b'data: {"a"'), Body(b": 1}\n\n")), {"events": [{"a": 1}], "end": "whole"}),
        (
            (EVENTS, Body(sse(1)), Body(b'data: {"a'), Cut()),
            {"events": [1], "rest": 'data: {"a', "end": "cut"},
        ),
        ((EVENTS, Body(sse(1)), Hang()), {"events": [1], "end": "stalled"}),
        ((EVENTS, Body(b"data: {nonsense\n\n")), {"text": "data: {nonsense\n\n", "end": "whole"}),
        ((Head(200, {}), Body(b"\xff\xfe")), {"base64": "//4=", "end": "whole"}),
        (
            (Head(200, {"content-type": "application/json"}), Body(b'{"n": 1}')),
            {"json": {"n": 1}, "end": "whole"},
        ),
        (
            (Head(200, {"content-encoding": "gzip"}), Body(zlib.compress(b"[1]", wbits=31))),
            {"json": [1], "end": "whole"},
        ),
        (
            (UpstreamFault("dns", "no such host"),),
            {"status": None, "fault": "dns", "message": "no such host", "end": "fault"},
        ),
        (
            (EVENTS, Body(sse(1)), UpstreamFault("cut", "cut")),
            {"events": [1], "fault": "cut", "end": "fault"},
        ),
    ],
)
def test_recorded_forms_of_an_answer(
    tmp_path: Path, parts: tuple[Any, ...], expected: dict[str, Any]
) -> None:
    """An answer is recorded as events, else as JSON, else as text, else as
    base64, with its ending."""
    answer = record(tmp_path / "c", *parts).answer
    assert {name: getattr(answer, name) for name in expected} == expected


def test_fault_is_recorded_and_raised(tmp_path: Path) -> None:
    """A fault of the upstream is recorded and then raised again."""
    recording = Recording(FixedUpstream(UpstreamFault("tls", "bad certificate")), tmp_path / "c")
    with pytest.raises(UpstreamFault, match="bad certificate"):
        collect_parts(recording, make_request({}))
    recording.close()
    assert load_cassette(tmp_path / "c").exchanges[0].answer.fault == "tls"


def test_client_disconnects(tmp_path: Path) -> None:
    """If the client disconnects, the partial answer is recorded with the ending "left".
    The upstream's answer is closed at once."""
    closed = []

    class Watched:
        async def answer(self, request: Any) -> Any:
            try:
                yield EVENTS
                yield Body(sse(1))
                yield Body(sse(2))
            finally:
                closed.append(True)

    recording = Recording(Watched(), tmp_path / "c")
    collect_parts(recording, make_request({}), most=2)
    assert closed == [True]
    recording.close()
    answer = load_cassette(tmp_path / "c").exchanges[0].answer
    assert (answer.events, answer.end) == ([1], "left")


def test_secrets_are_masked(tmp_path: Path) -> None:
    """Secrets and run tokens are masked in requests and answers, in texts, keys and arguments."""
    token = "geminids-run-" + "0a" * 24
    body = make_body(
        user_content(f"my key is {SECRET}"),
        tool_result_content("sh", f"A={SECRET}\nT={token}"),
        labels={SECRET: 1},
    )
    call = {"functionCall": {"name": "sh", "args": {"command": f"curl -H {SECRET}"}}}
    event = {"candidates": [{"content": {"parts": [call]}}]}
    record(
        tmp_path / "c",
        EVENTS,
        Body(sse(event)),
        Body(f"data: rest {SECRET[:9]}".encode()),
        body=body,
        secrets=(SECRET,),
    )
    text = (tmp_path / "c").read_text()
    assert SECRET not in text
    assert SECRET[:9] not in text
    assert token not in text
    assert "A=***" in text


def test_secret_split_over_chunks_is_masked(tmp_path: Path) -> None:
    """A secret that is split over streamed chunks is masked in thoughts and text.
    The rest stays unchanged."""
    pieces = [chunk("it is hunt"), chunk("er2-hun"), chunk("ter2, ok")]
    thoughts = [chunk("hunter2-", thought=True), chunk("hunter2", thought=True)]
    parts = [Body(sse(event)) for event in thoughts + pieces]
    recording = Recording(FixedUpstream(EVENTS, *parts), tmp_path / "c", secrets={SECRET})
    assert SECRET[:4] in body_text(collect_parts(recording, make_request({})))
    recording.close()
    events = load_cassette(tmp_path / "c").exchanges[0].answer.events or []
    texts = [event["candidates"][0]["content"]["parts"][0]["text"] for event in events]
    assert ("".join(texts[:2]), "".join(texts[2:])) == ("***", "it is ***, ok")
    assert len(texts) == 5


_WORDS = st.text(st.characters(codec="utf-8"), min_size=8, max_size=20)
_AROUND = st.text(st.characters(codec="utf-8"), max_size=5)


@given(_WORDS, st.data())
def test_cassette_never_contains_a_secret(
    tmp_path_factory: pytest.TempPathFactory, secret: str, data: st.DataObject
) -> None:
    """The cassette contains no secret, whatever the secret is and wherever it occurs."""
    text = data.draw(_AROUND) + secret + data.draw(_AROUND)
    spot = data.draw(st.sampled_from(["text", "key", "list", "raw", "json in text"]))
    values: dict[str, Any] = {
        "text": {"contents": [user_content(text)]},
        "key": {text: 1},
        "list": {"tools": [[text]], "systemInstruction": text},
        "raw": text.encode(),
        "json in text": {"contents": [user_content(json.dumps({"a": text}))]},
    }
    at = data.draw(st.integers(0, len(text)))
    events = [Body(sse(chunk(text[:at]))), Body(sse(chunk(text[at:])))]
    path = tmp_path_factory.mktemp("secret") / "c"
    record(path, EVENTS, *events, body=values[spot], secrets=(secret,))
    # The keys of the format itself (`"kind":"content"`) are not checked.
    written = [json.loads(line) for line in path.read_text().split("\n") if line]
    strings = list(_strings([{name: line.get(name) for name in ("content", "value")} for line in written]))
    strings += _strings(
        [line["request"].get("body", line["request"].get("text")) for line in written if "request" in line]
    )
    strings += ["".join(_texts(written[-1]["answer"]["events"]))]
    assert not [text for text in strings if secret in text and secret not in "***"]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for pair in value.items() for inner in pair for one in _strings(inner)]
    return [one for inner in value for one in _strings(inner)] if isinstance(value, list) else []


def _texts(events: list[Any]) -> list[str]:
    return [event["candidates"][0]["content"]["parts"][0]["text"] for event in events]


def test_killed_host_keeps_finished_exchanges(tmp_path: Path) -> None:
    """If the host is killed, the finished exchanges are in the `.part` file.
    An older cassette stays unchanged."""
    path = tmp_path / "c.jsonl"
    path.write_text("the old one")
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "shared")!r})
from gateway_requests import *
from geminids.gateway import Reply
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.scripted_upstream import Scripted
recording = Recording(Scripted([Reply(text="one"), Reply(text="two")]), {str(path)!r}, overwrite=True)
collect_parts(recording, make_request(make_body(user_content("a"))))
collect_parts(recording, make_request(make_body(user_content("b"))))
os.kill(os.getpid(), 9)
"""
    completed = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert completed.returncode == -9, completed.stderr
    assert path.read_text() == "the old one"
    (part,) = tmp_path.glob("c.jsonl.*.part")
    assert len(load_cassette(part).exchanges) == 2


def test_recording_without_requests(tmp_path: Path) -> None:
    """A recording without requests writes an empty cassette. It never replaces an existing one."""
    path = tmp_path / "c.jsonl"
    Recording(FixedUpstream(), path).close()
    assert load_cassette(path).exchanges == ()
    path.unlink()
    record(path, EVENTS)
    Recording(FixedUpstream(), path, overwrite=True).close()
    assert len(load_cassette(path).exchanges) == 1
    assert os.listdir(tmp_path) == ["c.jsonl"]


def test_second_recording_replaces_the_first(tmp_path: Path) -> None:
    """A second recording with `overwrite` replaces the first, also through a symbolic link.
    A second `close` has no effect."""
    (tmp_path / "link").symlink_to("c.jsonl")
    record(tmp_path / "c.jsonl", EVENTS, body=make_body(user_content("one")))
    recording = Recording(FixedUpstream(EVENTS), tmp_path / "link", overwrite=True)
    collect_parts(recording, make_request(make_body(user_content("two"))))
    recording.close()
    recording.close()
    assert load_cassette(tmp_path / "c.jsonl").exchanges[0].body == make_body(user_content("two"))
    assert (tmp_path / "link").is_symlink()


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    """Without `overwrite`, an existing file is refused at once. A file that is created meanwhile is
    not replaced either: the recording is then in `failed_path`."""
    path = tmp_path / "c.jsonl"
    path.write_text("not ours")
    with pytest.raises(GeminidsError, match="already exists") as refused:
        Recording(FixedUpstream(EVENTS), path)
    assert "`overwrite=True`" in (refused.value.hint or "")
    path.unlink()
    remarks: list[str] = []
    recording = Recording(FixedUpstream(EVENTS), path, on_remark=remarks.append)
    collect_parts(recording, make_request(make_body(user_content("hi"))))
    path.write_text("not ours")
    recording.close()
    assert path.read_text() == "not ours"
    assert len(load_cassette(recording.failed_path).exchanges) == 1
    assert remarks == [recording.problem]
    assert str(recording.failed_path) in remarks[0]
    assert sorted(os.listdir(tmp_path)) == ["c.jsonl", "c.jsonl.failed"]


@pytest.mark.parametrize("existing", ["the old one", None])
def test_a_failed_recording_keeps_the_old_one(tmp_path: Path, existing: str | None) -> None:
    """`close(keep=False)` does not change the cassette, and keeps the recording beside it. A later
    failed recording replaces it; one without requests leaves nothing."""
    path = tmp_path / "c.jsonl"
    if existing is not None:
        path.write_text(existing)
    for text in ("one", "two", None):
        recording = Recording(FixedUpstream(EVENTS), path, overwrite=True)
        if text is not None:
            collect_parts(recording, make_request(make_body(user_content(text))))
        assert recording.has_requests == (text is not None)
        recording.close(keep=False)
    assert (path.read_text() if path.exists() else None) == existing
    (exchange,) = load_cassette(tmp_path / "c.jsonl.failed").exchanges
    assert exchange.body == make_body(user_content("two"))
    assert sorted(os.listdir(tmp_path)) == [*(["c.jsonl"] if existing else []), "c.jsonl.failed"]


@pytest.mark.parametrize("name", ["", "absent/c.jsonl"])
def test_unwritable_cassette(tmp_path: Path, name: str) -> None:
    """A cassette that cannot be written raises an error with a hint before the first request."""
    with pytest.raises(GeminidsError, match="cannot record to") as caught:
        Recording(FixedUpstream(), tmp_path / name)
    assert caught.value.hint


def test_full_disk_ends_only_the_recording(tmp_path: Path) -> None:
    """If the disk is full, the answer is still forwarded and a remark is reported.
    No incomplete cassette is left."""
    code = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "shared")!r})
from gateway_requests import *
from geminids.gateway import Reply
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.scripted_upstream import Scripted
recording = Recording(Scripted([Reply(text="one")]), {str(tmp_path / "c")!r}, on_remark=print)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
assert "one" in body_text(collect_parts(recording, make_request(make_body(user_content("a")))))
recording.close()
"""
    completed = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "has stopped: File too large" in completed.stdout
    assert not (tmp_path / "c").exists()


def test_mismatch_is_not_recorded(tmp_path: Path) -> None:
    """If the upstream is a replay without an answer, the mismatch is not recorded."""
    recording = Recording(FixedUpstream(Mismatch("m", "h")), tmp_path / "c")
    with pytest.raises(Mismatch):
        collect_parts(recording, make_request({}))
    recording.close()
    assert load_cassette(tmp_path / "c").exchanges == ()
