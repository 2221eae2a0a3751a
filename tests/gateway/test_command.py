"""`geminids gateway`, as a process."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

COMMAND = [sys.executable, "-c", "from geminids.cli.gateway import gateway; gateway()"]
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


def ask(url: str) -> bytes:
    with urllib.request.urlopen(
        f"{url}/v1beta/models/m:streamGenerateContent?alt=sse", data=BODY
    ) as response:
        return bytes(response.read())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_json(start: Start, tmp_path: Path, end: signal.Signals) -> None:
    """With --json stdout has one object with the address, then one a request; a signal ends it with 0."""
    (tmp_path / "script.json").write_text('[{"text": "hi"}]')
    process = start(f"--script={tmp_path / 'script.json'}", "--json")
    greeting = json.loads(line(process.stdout))
    assert greeting["url"] == f"http://127.0.0.1:{greeting['port']}"
    assert set(greeting["env"]) == {"GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "GEMINI_CLI_TRUST_WORKSPACE"}
    assert b'"hi"' in ask(greeting["url"])
    seen = json.loads(line(process.stdout))
    expected = {"n": 1, "method": "stream", "model": "m", "text": "hello�[31m there", "reply": "text"}
    assert seen == expected
    process.send_signal(end)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "")


def test_pretty(start: Start) -> None:
    """The address and the variables go to stderr, a line for each request to stdout."""
    process = start()
    greeting = line(process.stderr)
    url = greeting.split(" on ")[1].split()[0]
    assert f"GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=" in greeting
    assert b"No tool" in ask(url)
    assert line(process.stdout).split() == ["1", "stream", "m", "“hello�[31m", "there”", "->", "text"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0


def test_bad_script(start: Start, tmp_path: Path) -> None:
    """A bad script is one clear message and exit 2, before any port is opened."""
    (tmp_path / "script.json").write_text('[\n{"txt": "hi"}]')
    process = start(f"--script={tmp_path / 'script.json'}", "--json")
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (2, "")
    assert "script.json:2: reply 1: Object contains unknown field `txt`" in err


def test_closed_pipe(start: Start) -> None:
    """When nobody reads its lines any more the command ends by itself."""
    process = start("--json")
    url = json.loads(line(process.stdout))["url"]
    assert process.stdout is not None
    process.stdout.close()
    with contextlib.suppress(OSError, http.client.HTTPException):
        ask(url)
    assert process.wait(timeout=10) == 0
    assert process.stderr is not None
    process.stderr.close()
