"""Tests of the `geminids gateway` command, run as a process."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from fake_google import FakeGoogle
from geminids.gateway import Reply
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gateway.script.load import read_script

COMMAND = [sys.executable, "-c", "from geminids.cli.commands.gateway import gateway; gateway()"]
BODY = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hello\x1b[31m there"}]}]}).encode()

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def ask(url: str, key: str = "k") -> bytes:
    path = "/v1beta/models/m:streamGenerateContent?alt=sse"
    request = urllib.request.Request(url + path, data=BODY, headers={"x-goog-api-key": key})
    with urllib.request.urlopen(request) as response:
        return bytes(response.read())


def _script(folder: Path) -> Path:
    file = folder / "script.json"
    file.write_text('[{"text": "hi"}]')
    return file


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_json(start: Start, tmp_path: Path, end: signal.Signals) -> None:
    """With --json, stdout has one object with the address, then one per request.
    SIGINT or SIGTERM ends the command with exit code 0."""
    (tmp_path / "script.json").write_text('[{"text": "hi"}]')
    process = start(f"--script={tmp_path / 'script.json'}", "--json")
    greeting = json.loads(line(process.stdout))
    assert greeting["url"] == f"http://127.0.0.1:{greeting['port']}"
    assert set(greeting["env"]) == {"GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "GEMINI_CLI_TRUST_WORKSPACE"}
    assert b'"hi"' in ask(greeting["url"])
    reported = json.loads(line(process.stdout))
    expected = {"n": 1, "method": "stream", "model": "m", "text": "hello�[31m there", "reply": "text"}
    assert reported == expected
    process.send_signal(end)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "")


def test_pretty(start: Start) -> None:
    """The command prints its address and variables to stderr and one line per request to stdout."""
    process = start()
    greeting = line(process.stderr)
    url = greeting.split(" on ")[1].split()[0]
    assert f"GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=" in greeting
    assert b"No tool" in ask(url)
    assert line(process.stdout).split() == ["1", "stream", "m", "“hello�[31m", "there”", "->", "text"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0


def test_bad_script(start: Start, tmp_path: Path) -> None:
    """A bad script causes one error message and exit code 2, and no server starts."""
    (tmp_path / "script.json").write_text('[\n{"txt": "hi"}]')
    process = start(f"--script={tmp_path / 'script.json'}", "--json")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (2, "")
    assert "script.json:2: reply 1: Object contains unknown field `txt`" in err
    assert "The fields of a reply: thought, text, calls" in err
    assert "docs/" not in err


def test_the_example_in_the_help_is_a_valid_script(start: Start) -> None:
    """`--help` describes the format of a script, and its example can be loaded."""
    out, _ = start("--help").communicate(timeout=10)
    example = out[out.index("[{") : out.index("}]\n", out.index("[{")) + 2]
    replies = read_script(example.encode()).replies
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert replies[0].calls[0].name == "read_file"
    assert replies[2].when is not None


def test_an_existing_cassette_is_replaced_only_with_force(start: Start, tmp_path: Path) -> None:
    """`--record` refuses an existing file with exit code 2; with `--force` it replaces the file."""
    cassette = tmp_path / "c.jsonl"
    cassette.write_text("the old one")
    process = start(f"--record={cassette}", f"--script={_script(tmp_path)}")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, cassette.read_text()) == (2, "", "the old one")
    assert "already exists" in err
    assert "--force" in err
    process = start(f"--record={cassette}", f"--script={_script(tmp_path)}", "--force", "--json")
    assert b'"hi"' in ask(json.loads(line(process.stdout))["url"])
    assert cassette.read_text() == "the old one"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert len(load_cassette(cassette).exchanges) == 1


def test_record_and_replay(start: Start, tmp_path: Path) -> None:
    """--record writes a cassette, and --replay answers from it.
    A request that is not recorded gets a 400, and stderr explains why."""
    cassette = tmp_path / "c.jsonl"
    (tmp_path / "script.json").write_text('[{"text": "hi"}]')
    process = start(f"--script={tmp_path / 'script.json'}", f"--record={cassette}", "--json")
    assert b'"hi"' in ask(json.loads(line(process.stdout))["url"])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    process = start(f"--replay={cassette}", "--json")
    url = json.loads(line(process.stdout))["url"]
    assert b'"hi"' in ask(url)
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(url)
    assert caught.value.code == 400
    caught.value.close()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert [json.loads(row)["reply"] for row in out.splitlines()] == ["replayed", "not recorded"]
    assert "it is equal to request number 1, whose answer has already been replayed" in err
    assert process.returncode == 0


def test_bad_cassettes(start: Start, tmp_path: Path) -> None:
    """An unreadable or unwritable cassette causes one error message and exit code 2."""
    for flags, message in (
        ([f"--replay={tmp_path / 'none'}"], "does not exist"),
        ([f"--record={tmp_path / 'none' / 'c'}", f"--script={tmp_path / 's'}"], "cannot record to"),
        ([f"--record={tmp_path / 'c'}", f"--replay={tmp_path / 'c'}"], "--replay cannot be used with"),
    ):
        (tmp_path / "s").write_text('[{"text": "hi"}]')
        process = start(*flags)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out) == (2, "")
        assert message in err


def test_recording_from_google_needs_a_key(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a script, --record forwards to Google. Without a key it exits with code 2."""
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    process = start(f"--record={tmp_path / 'c'}")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (2, "")
    assert "Set GEMINI_API_KEY" in err


def test_recording_from_google(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only requests with the gateway's token are forwarded to Google, with the real key.
    Neither the output nor the cassette contains the key."""
    key = "AIzaSy-a-key-of-google"
    monkeypatch.setenv("GEMINI_API_KEY", key)
    with FakeGoogle([Reply(text="hi")], with_key=key) as google:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", google.url)
        process = start(f"--record={tmp_path / 'c'}", "--json")
        greeting = json.loads(line(process.stdout))
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(greeting["url"])
        assert caught.value.code == 403
        caught.value.close()
        assert google.asked == []
        assert b'"hi"' in ask(greeting["url"], greeting["env"]["GEMINI_API_KEY"])
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    assert key not in str(greeting) + out + (tmp_path / "c").read_text()
    assert len(load_cassette(tmp_path / "c").exchanges) == 1


def test_closed_stdout_ends_the_command(start: Start) -> None:
    """The command ends with exit code 0 when its stdout is closed."""
    process = start("--json")
    url = json.loads(line(process.stdout))["url"]
    assert process.stdout is not None
    process.stdout.close()
    with contextlib.suppress(OSError, http.client.HTTPException):
        ask(url)
    assert process.wait(timeout=10) == 0
    assert process.stderr is not None
    process.stderr.close()
