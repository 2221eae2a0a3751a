"""`geminids run` in a pipe and with `--script`, with the real CLI: what the model receives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plain_gemini import plain_gemini

pytestmark = pytest.mark.real


def run(world: Any, *words: str, data: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **env}
    flags = [f"--cwd={world.cwd}", f"--gemini={world.version}", "--model=flash"]
    argv = [sys.executable, "-m", "geminids", "run", *words, *flags]
    return subprocess.run(argv, env={**os.environ, **own}, input=data, capture_output=True, timeout=120)


def prompts(world: Any) -> list[str]:
    return [request.last_user_text for request in world.gateway.requests]


def test_the_model_receives_what_plain_gemini_sends(world: Any) -> None:
    """The model receives the piped text in front of the prompt, exactly as from `gemini -p`."""
    log = "ERROR 1: disk full\n  at /srv\n\tünïcode 🌠\n".encode()
    for _ in range(2):
        world.gateway.reply(text="ok")
    done = run(world, "Explain this log", data=log, **world.gateway.env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")
    assert plain_gemini(world, "--prompt=Explain this log", data=log).returncode == 0
    ours, theirs = prompts(world)
    assert ours == theirs == f"{log.decode()}\n\nExplain this log"


def test_piped_text_includes_no_file(world: Any) -> None:
    """`@path` in piped text includes no file and calls no command, unlike `@path` in the prompt."""
    (world.cwd / "secret.txt").write_text("the secret content")
    for _ in range(2):
        world.gateway.reply(text="ok")
    assert run(world, "Explain", data=b"/quit @secret.txt\n", **world.gateway.env).returncode == 0
    assert run(world, "Explain @secret.txt", data=b"a log\n", **world.gateway.env).returncode == 0
    data, prompt = (json.dumps(request.contents) for request in world.gateway.requests)
    assert "the secret content" not in data
    assert "/quit" in data
    assert "the secret content" in prompt


def test_a_large_input_arrives_whole(world: Any) -> None:
    """An input of 3 MB reaches the model whole."""
    world.gateway.reply(text="ok")
    data = b"".join(b"%07d\n" % number for number in range(375_000))
    done = run(world, "How many lines?", data=data, **world.gateway.env)
    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr
    assert prompts(world)[-1] == f"{data.decode()}\n\nHow many lines?"


def test_a_scripted_run(world: Any) -> None:
    """`--script` answers from the file without a key: the CLI calls its real tools, and the run
    costs nothing. The variables of a real API are not used."""
    script: Path = world.root / "script.json"
    (world.cwd / "a.py").write_text("x = 1\n")
    call = {"name": "read_file", "args": {"file_path": "a.py"}}
    script.write_text(json.dumps([{"calls": [call]}, {"text": "x is 1"}]))
    keys = {"GEMINI_API_KEY": "", "GOOGLE_GEMINI_BASE_URL": world.gateway.url}
    done = run(world, "What is x?", f"--script={script}", "-o", "events", **keys)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (tool,) = [event for event in events if event["type"] == "tool_finished"]
    assert (tool["name"], tool["status"]) == ("read_file", "ok")
    assert (done.returncode, events[-1]["answer"], events[-1]["cost"]["usd"]) == (0, "x is 1", 0)
    assert world.gateway.requests == []


def test_a_script_that_is_not_valid(world: Any) -> None:
    """A script that is not valid is refused with its line and the fields of a reply, and a script
    that does not exist as an option is."""
    script: Path = world.root / "script.json"
    script.write_text('[\n{"txt": "hi"}]')
    done = run(world, "hi", f"--script={script}")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"script.json:2: reply 1: Object contains unknown field `txt`" in done.stderr
    assert b"The fields of a reply: thought, text" in done.stderr
    assert b"docs/" not in done.stderr
    done = run(world, "hi", "--script=nope.json")
    assert done.returncode == 2
    assert b"script: 'nope.json' does not exist" in done.stderr
