"""What a program that starts `gemini` itself calls today, and what it calls here, on the real CLI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import geminids
from geminids.process.marker import MARKER
from geminids.process.tree import marked
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[2] / "docs" / "migrate" / "subprocess.md"


@pytest.fixture
def release() -> str:
    """Only the newest release, which this page is about."""
    return "0.61.0"


def test_text_output(world: Any) -> None:
    """`answer` is what `gemini -p` prints."""
    world.gateway.reply(text="It is a folder.")
    plain = plain_gemini(world, "-p", "What is this?")
    world.gateway.reply(text="It is a folder.")
    assert world.ask("What is this?").answer == plain.stdout.decode().strip() == "It is a folder."


def test_json_output(world: Any) -> None:
    """The result has the answer, the session and the tokens of `--output-format json`."""
    usage = {"input": 1000, "cached": 300, "output": 20}
    world.gateway.reply(text="It is a folder.", usage=usage)
    report = json.loads(plain_gemini(world, "-p", "What is this?", "--output-format", "json").stdout)
    world.gateway.reply(text="It is a folder.", usage=usage)
    result = world.ask("What is this?")
    assert result.answer == report["response"]
    assert len(str(result.session_id)) == len(report["session_id"])
    (model,) = report["stats"]["models"].values()
    assert result.usage is not None
    assert (result.usage.input, result.usage.cached) == (model["tokens"]["prompt"], model["tokens"]["cached"])


def test_stream_json(world: Any) -> None:
    """`stream_sync` gives typed events, and `on_line` the CLI's own lines."""
    (world.cwd / "a.txt").write_text("hello\n")
    world.gateway.reply(calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.reply(text="It says hello.")
    lines: list[str] = []
    run = geminids.open_run("Read it.", world.options(), on_line=lambda line, _: lines.append(line))

    async def read() -> list[geminids.Event]:
        async with run:
            return [event async for event in run]

    import anyio

    events = anyio.run(read)
    (tool,) = [event for event in events if isinstance(event, geminids.ToolFinished)]
    assert (tool.name, tool.output) == ("read_file", "hello\n")
    kinds = [json.loads(line)["type"] for line in lines]
    assert (kinds[0], kinds[-1]) == ("init", "result") and "tool_use" in kinds
    # The reason on the page: the CLI's own line has not what the model received.
    (own,) = [json.loads(line) for line in lines if json.loads(line)["type"] == "tool_result"]
    assert "hello" not in own.get("output", "")


def test_a_timeout_ends_the_tools_too(world: Any) -> None:
    """`timeout` ends the run with the outcome `timed_out`, and with it the shell of a tool."""
    command = "echo $$ > tool.pid; sleep 300"
    world.gateway.when("hello", calls=[("run_shell_command", {"command": command})])
    began = time.monotonic()
    options = {"approval": "yolo", "idle_timeout": None, "timeout": 20.0, "grace": 1.0}
    result = world.ask("hello", **options)
    assert (result.outcome, result.ok) == ("timed_out", False)
    assert (world.cwd / "tool.pid").exists()
    assert marked(os.environ[MARKER]) == []
    assert time.monotonic() - began < 60


def test_resume(world: Any) -> None:
    """`resume` continues a session by its id or as `latest`."""
    world.gateway.reply(text="The word is pear.")
    first = world.ask("Choose a word.")
    for resume in (first.session_id, "latest"):
        world.gateway.reply(text="Pear.")
        again = world.ask("Which word?", resume=resume)
        assert (again.answer, again.session_id) == ("Pear.", first.session_id)
        assert "The word is pear." in json.dumps(world.gateway.requests[-1].body)


@pytest.mark.parametrize(("approval", "made"), [("default", False), ("yolo", True)])
def test_yolo(world: Any, approval: str, made: bool) -> None:
    """`approval="yolo"` allows shells. Without it, the command has no effect."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "touch made"})])
    world.gateway.reply(text="Done.")
    assert world.ask("Do it.", approval=approval).ok
    assert (world.cwd / "made").exists() == made


def test_the_key_stays_here(world: Any) -> None:
    """The key in `env` reaches the API, and no tool sees it."""
    key = world.gateway.env["GEMINI_API_KEY"]
    world.gateway.reply(calls=[("run_shell_command", {"command": "env > seen.txt"})])
    world.gateway.reply(text="Done.")
    assert world.ask("Do it.", approval="yolo", env={"GEMINI_API_KEY": key}).ok
    assert "PATH=" in (world.cwd / "seen.txt").read_text()
    assert key not in (world.cwd / "seen.txt").read_text()
    assert {request.key for request in world.gateway.requests} == {key}


def test_a_failure_has_a_kind(world: Any) -> None:
    """A refused key is `auth`, with the HTTP status and a hint, and needs no text to be parsed."""
    world.gateway.reply(status=400, error="API key not valid. Please pass a valid API key.")
    failure = world.ask("hello").failure
    assert (failure.kind, failure.http_status, failure.retryable) == ("auth", 400, False)
    assert failure.hint


def test_a_prompt_that_looks_like_a_flag(world: Any) -> None:
    """A prompt that begins with a dash is a prompt. `gemini -p` takes it for a flag."""
    assert b"hello" not in plain_gemini(world, "-p", "--version").stdout
    assert world.gateway.requests == []
    world.gateway.reply(text="hello")
    assert world.ask("--version").answer == "hello"


def test_the_program_of_the_page(world: Any) -> None:
    """The complete program of the page runs as it is."""
    (program,) = re.findall(r"```python\n(# A complete program.*?)```", PAGE.read_text(), re.DOTALL)
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=world.cwd, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "outcome: success same session: True" in done.stdout
    assert re.search(r"^tokens: \d+$", done.stdout, re.MULTILINE)
