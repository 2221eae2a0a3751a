"""Recording: what passes is passed on as it is, and is in the file without any secret."""

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

from asked import STREAM, Fixed, asked, body_of, heard, result, text_of, user
from geminids.errors import GeminidsError
from geminids.gateway import Gateway, Reply
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gateway.cassette.lines import CassetteHeader
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.encode import sse
from geminids.gateway.script.scripted import Scripted
from geminids.gateway.upstream import Body, Cut, Head, Mismatch, Part, Stall, UpstreamFault

SECRET = "hunter2-hunter2"
EVENTS = Head(200, {"content-type": "text/event-stream"})


def record(
    path: Path,
    *parts: Part | Exception,
    body: Any = None,
    secrets: tuple[str, ...] = (),
    most: int | None = None,
) -> Any:
    """The one exchange that these parts make, read back."""
    recording = Recording(Fixed(*parts), path, secrets=secrets)
    try:
        heard(recording, asked(body_of(user("hi")) if body is None else body))
    except (UpstreamFault, Mismatch):
        pass
    recording.close()
    (exchange,) = load_cassette(path).exchanges
    return exchange


def chunk(text: str, **part: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text, **part}]}}]}


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    """A second one would overwrite the first: it is refused, until the first is closed."""
    path = tmp_path / "c.jsonl"
    first = Recording(Scripted(), path)
    with pytest.raises(GeminidsError, match="another run or chat") as refused:
        Recording(Scripted(), path)
    assert refused.value.hint
    other = Recording(Scripted(), tmp_path / "other.jsonl")
    for recording in (first, other, Recording(Scripted(), tmp_path / "third.jsonl")):
        recording.close()
    Recording(Scripted(), path).close()


def test_through_a_server(tmp_path: Path) -> None:
    """A client gets what it would have got without, and the file has both sides, for its owner alone."""
    path = tmp_path / "c.jsonl"
    recording = Recording(Scripted([Reply(text=["a", "b"])]), path, header=CassetteHeader(model="flash"))
    with Gateway(recording) as gateway:
        data = json.dumps(body_of(user("hi"))).encode()
        with urllib.request.urlopen(gateway.url + STREAM, data=data) as response:
            got = response.read()
    recording.close()
    found = load_cassette(path)
    assert b"".join(sse(event) for event in found.exchanges[0].answer.events or ()) == got
    assert found.exchanges[0].body == body_of(user("hi"))
    assert (found.header.model, found.header.cli, bool(found.header.made)) == ("flash", None, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["c.jsonl"]


def test_the_release_is_told_by_the_cli_itself(tmp_path: Path) -> None:
    """Nobody has to say which release is recorded."""
    record(tmp_path / "c", EVENTS)
    header = load_cassette(tmp_path / "c").header
    assert (header.cli, header.model) == ("0.61.0", "gemini-3.8-flash")


def test_nothing_of_the_headers_is_kept(tmp_path: Path) -> None:
    """Neither key nor user agent nor what the API sends along: type and retry-after alone."""
    head = Head(
        429,
        {
            "content-type": "application/json",
            "retry-after": "7",
            "x-request-id": "abcdef",
            "set-cookie": "c=1",
        },
    )
    recording = Recording(Fixed(head, Body(b'{"error":{}}')), tmp_path / "c")
    heard(recording, asked(body_of(user("hi")), STREAM + "&key=in-the-query", key="in-a-header"))
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
        ((EVENTS, Body(sse(1)), Stall()), {"events": [1], "end": "stalled"}),
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
def test_each_answer(tmp_path: Path, parts: tuple[Any, ...], expected: dict[str, Any]) -> None:
    """Events as values, else JSON, else text, else bytes; and how it ended."""
    answer = record(tmp_path / "c", *parts).answer
    assert {name: getattr(answer, name) for name in expected} == expected


def test_a_fault_goes_on_to_the_caller(tmp_path: Path) -> None:
    """What cannot be had is recorded, and raised all the same."""
    recording = Recording(Fixed(UpstreamFault("tls", "bad certificate")), tmp_path / "c")
    with pytest.raises(UpstreamFault, match="bad certificate"):
        heard(recording, asked({}))
    recording.close()
    assert load_cassette(tmp_path / "c").exchanges[0].answer.fault == "tls"


def test_a_client_that_leaves(tmp_path: Path) -> None:
    """What it had is there, and that it left; the upstream's answer is closed at once."""
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
    heard(recording, asked({}), most=2)
    assert closed == [True]
    recording.close()
    answer = load_cassette(tmp_path / "c").exchanges[0].answer
    assert (answer.events, answer.end) == ([1], "left")


def test_secrets_in_what_tools_printed(tmp_path: Path) -> None:
    """A secret is masked in requests and answers, in texts, arguments, errors and paths; tokens of runs too."""
    token = "geminids-run-" + "0a" * 24
    body = body_of(user(f"my key is {SECRET}"), result("sh", f"A={SECRET}\nT={token}"), labels={SECRET: 1})
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


def test_a_secret_in_pieces(tmp_path: Path) -> None:
    """A secret that is streamed in pieces is masked over them, in thoughts and in text; the rest stays as it is."""
    pieces = [chunk("it is hunt"), chunk("er2-hun"), chunk("ter2, ok")]
    thoughts = [chunk("hunter2-", thought=True), chunk("hunter2", thought=True)]
    parts = [Body(sse(event)) for event in thoughts + pieces]
    recording = Recording(Fixed(EVENTS, *parts), tmp_path / "c", secrets={SECRET})
    assert SECRET[:4] in text_of(heard(recording, asked({})))
    recording.close()
    events = load_cassette(tmp_path / "c").exchanges[0].answer.events or []
    texts = [event["candidates"][0]["content"]["parts"][0]["text"] for event in events]
    assert ("".join(texts[:2]), "".join(texts[2:])) == ("***", "it is ***, ok")
    assert len(texts) == 5


_WORDS = st.text(st.characters(codec="utf-8"), min_size=8, max_size=20)
_AROUND = st.text(st.characters(codec="utf-8"), max_size=5)


@given(_WORDS, st.data())
def test_no_secret_is_ever_in_the_file(
    tmp_path_factory: pytest.TempPathFactory, secret: str, data: st.DataObject
) -> None:
    """Whatever the secret is and wherever it stands, the file does not have it, as it is or as JSON writes it."""
    text = data.draw(_AROUND) + secret + data.draw(_AROUND)
    spot = data.draw(st.sampled_from(["text", "key", "list", "raw", "json in text"]))
    values: dict[str, Any] = {
        "text": {"contents": [user(text)]},
        "key": {text: 1},
        "list": {"tools": [[text]], "systemInstruction": text},
        "raw": text.encode(),
        "json in text": {"contents": [user(json.dumps({"a": text}))]},
    }
    at = data.draw(st.integers(0, len(text)))
    events = [Body(sse(chunk(text[:at]))), Body(sse(chunk(text[at:])))]
    path = tmp_path_factory.mktemp("secret") / "c"
    record(path, EVENTS, *events, body=values[spot], secrets=(secret,))
    # Its own words (`{"kind":"said"`) are not the point.
    written = [json.loads(line) for line in path.read_text().split("\n") if line]
    strings = list(_strings([{name: line.get(name) for name in ("content", "value")} for line in written]))
    strings += _strings(
        [line["request"].get("body", line["request"].get("text")) for line in written if "request" in line]
    )
    strings += ["".join(_texts(written[-1]["answer"]["events"]))]
    assert not [one for one in strings if secret in one and secret not in "***"]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for pair in value.items() for inner in pair for one in _strings(inner)]
    return [one for inner in value for one in _strings(inner)] if isinstance(value, list) else []


def _texts(events: list[Any]) -> list[str]:
    return [event["candidates"][0]["content"]["parts"][0]["text"] for event in events]


def test_what_a_killed_host_had_recorded(tmp_path: Path) -> None:
    """A host that is killed loses only what was going on: the exchanges before are in the part file, and a cassette
    that was there before is as it was."""
    path = tmp_path / "c.jsonl"
    path.write_text("the old one")
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "shared")!r})
from asked import *
from geminids.gateway import Reply
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.scripted import Scripted
recording = Recording(Scripted([Reply(text="one"), Reply(text="two")]), {str(path)!r})
heard(recording, asked(body_of(user("a"))))
heard(recording, asked(body_of(user("b"))))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert path.read_text() == "the old one"
    (part,) = tmp_path.glob("c.jsonl.*.part")
    assert len(load_cassette(part).exchanges) == 2


def test_a_run_that_asked_nothing(tmp_path: Path) -> None:
    """It makes an empty cassette, but never in the place of one that is there."""
    path = tmp_path / "c.jsonl"
    Recording(Fixed(), path).close()
    assert load_cassette(path).exchanges == ()
    record(path, EVENTS)
    Recording(Fixed(), path).close()
    assert len(load_cassette(path).exchanges) == 1
    assert os.listdir(tmp_path) == ["c.jsonl"]


def test_recording_again_takes_the_place(tmp_path: Path) -> None:
    """A second recording replaces the first, through a link too; closing twice does no harm."""
    (tmp_path / "link").symlink_to("c.jsonl")
    record(tmp_path / "c.jsonl", EVENTS, body=body_of(user("one")))
    recording = Recording(Fixed(EVENTS), tmp_path / "link")
    heard(recording, asked(body_of(user("two"))))
    recording.close()
    recording.close()
    assert load_cassette(tmp_path / "c.jsonl").exchanges[0].body == body_of(user("two"))
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["", "absent/c.jsonl"])
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    """It is said before anything is asked, with what to do."""
    with pytest.raises(GeminidsError, match="cannot record to") as caught:
        Recording(Fixed(), tmp_path / name)
    assert caught.value.hint


def test_a_full_disk_ends_the_recording_and_not_the_run(tmp_path: Path) -> None:
    """The answer passes on, whoever listens is told, and the cassette does not pretend to be whole."""
    code = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "shared")!r})
from asked import *
from geminids.gateway import Reply
from geminids.gateway.cassette.recording import Recording
from geminids.gateway.script.scripted import Scripted
recording = Recording(Scripted([Reply(text="one")]), {str(tmp_path / "c")!r}, on_remark=print)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
assert "one" in text_of(heard(recording, asked(body_of(user("a")))))
recording.close()
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "has stopped: File too large" in done.stdout
    assert not (tmp_path / "c").exists()


def test_a_mismatch_is_no_answer(tmp_path: Path) -> None:
    """What a replay has no answer for is not recorded as one."""
    recording = Recording(Fixed(Mismatch("m", "h")), tmp_path / "c")
    with pytest.raises(Mismatch):
        heard(recording, asked({}))
    recording.close()
    assert load_cassette(tmp_path / "c").exchanges == ()
