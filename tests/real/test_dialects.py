"""The real CLI in every dialect: what is printed live is what the saved events become."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import geminids
from geminids.dialects.dialect import DIALECTS

pytestmark = pytest.mark.real


@pytest.fixture
def release() -> str:
    """The newest: what differs by release is in the events already."""
    return "0.61.0"


def _geminids(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "geminids", *words]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env={**os.environ, **(env or {})}
    )


@pytest.mark.parametrize(
    "name",
    [name if name == "claude" else pytest.param(name, marks=pytest.mark.deep) for name in sorted(DIALECTS)],
)
def test_live_is_what_convert_gives(world: Any, name: str, tmp_path: Path) -> None:
    """`run --offline -o FORMAT` and `convert` of its events are the same bytes."""
    file = tmp_path / "events.jsonl"
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    words = ["--offline", "--gemini", world.version, "--cwd", str(world.cwd), "--save-events", str(file)]
    live = _geminids("run", "What is in this folder?", "-o", name, *words, env=env)
    assert live.returncode == 0, live.stderr
    assert live.stdout
    assert _geminids("convert", str(file), "--to", name).stdout == live.stdout


def test_what_the_cli_printed_tells_the_same_run(world: Any, tmp_path: Path) -> None:
    """Its stream-json alone gives the outcome, the text, the session and the tools of the run that it was of."""
    (world.cwd / "a.txt").write_text("hello\n")
    world.gateway.when("hello", text="Let me see. ", calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.when("hello", text="It says hello.")
    lines: list[str] = []
    run = geminids.open_run("hello", world.options(), on_line=lambda line, events: lines.append(line))
    from geminids.client import _stream

    *_, end = _stream(run)
    file = tmp_path / "stream.jsonl"
    file.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    told = _geminids("convert", str(file), "--to", "events").stdout.splitlines()
    events = [geminids.decode_event(line) for line in told]
    began, last = events[0], events[-1]
    assert isinstance(began, geminids.Started) and isinstance(last, geminids.Finished)
    assert isinstance(end, geminids.Finished)
    assert began.prompt == "hello"
    for field in ("outcome", "text", "answer", "session_id"):
        assert getattr(last, field) == getattr(end, field)
    names = [event.name for event in events if isinstance(event, geminids.ToolFinished)]
    assert names == ["read_file"]


def test_the_trace_goes_on_in_what_a_tool_starts(world: Any) -> None:
    """The CLI hands `TRACEPARENT` of the run's span to its shell: what that traces belongs to the run."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from geminids.dialects.otel import Spans, traceparent_env

    told = Spans(trace.TracerProvider(shutdown_on_exit=False).get_tracer("test"))
    env = traceparent_env(told.start())
    world.gateway.when("trace", calls=[("run_shell_command", {"command": "echo trace=$TRACEPARENT"})])
    world.gateway.when("trace", text="Traced.")
    options = world.options(approval="yolo")
    events = list(geminids.stream_sync("trace", msgspec.structs.replace(options, env={**options.env, **env})))
    (shell,) = [event for event in events if isinstance(event, geminids.ToolFinished)]
    assert env["TRACEPARENT"].startswith("00-")
    assert f"trace={env['TRACEPARENT']}" in (shell.output or "")
