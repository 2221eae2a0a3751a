"""With the real CLI, live output in each dialect equals the conversion of the saved events."""

from __future__ import annotations

import json
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
    """Only the newest release: differences between releases show in the events, not in the
    dialects."""
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
def test_live_output_equals_convert(world: Any, name: str, tmp_path: Path) -> None:
    """`run --offline -o FORMAT` and `convert` of its saved events print the same bytes. Only a live
    record names the files of its run."""
    file = tmp_path / "events.jsonl"
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    words = ["--offline", "--gemini", world.version, "--cwd", str(world.cwd), "--save-events", str(file)]
    live = _geminids("run", "What is in this folder?", "-o", name, *words, env=env)
    assert live.returncode == 0, live.stderr
    assert live.stdout
    converted = _geminids("convert", str(file), "--to", name).stdout
    if name != "record":
        assert converted == live.stdout
        return
    fields: dict[str, Any] = json.loads(live.stdout)
    for of_files in ("output_path", "raw_output", "trajectory_path", "telemetry_log"):
        assert fields[of_files]
        fields[of_files] = None
    assert json.loads(converted) == fields


def test_stream_json_converts_to_the_same_run(world: Any, tmp_path: Path) -> None:
    """The CLI's stream-json lines convert to the same outcome, text, session and tools as their
    run."""
    (world.cwd / "a.txt").write_text("hello\n")
    world.gateway.when("hello", text="Let me see. ", calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.when("hello", text="It says hello.")
    lines: list[str] = []
    run = geminids.open_run("hello", world.options(), on_line=lambda line, events: lines.append(line))
    from geminids.client import _stream

    *_, finished = _stream(run)
    file = tmp_path / "stream.jsonl"
    file.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    converted = _geminids("convert", str(file), "--to", "events").stdout.splitlines()
    events = [geminids.decode_event(line) for line in converted]
    first, last = events[0], events[-1]
    assert isinstance(first, geminids.Started) and isinstance(last, geminids.Finished)
    assert isinstance(finished, geminids.Finished)
    assert first.prompt == "hello"
    for field in ("outcome", "text", "answer", "session_id"):
        assert getattr(last, field) == getattr(finished, field)
    names = [event.name for event in events if isinstance(event, geminids.ToolFinished)]
    assert names == ["read_file"]


def test_a_tool_receives_traceparent(world: Any) -> None:
    """A shell tool receives `TRACEPARENT` of the run's span, so that its own traces belong to the
    run."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from geminids.dialects.otel import Spans, traceparent_env

    spans = Spans(trace.TracerProvider(shutdown_on_exit=False).get_tracer("test"))
    env = traceparent_env(spans.start())
    world.gateway.when("trace", calls=[("run_shell_command", {"command": "echo trace=$TRACEPARENT"})])
    world.gateway.when("trace", text="Traced.")
    options = world.options(approval="yolo")
    events = list(geminids.stream_sync("trace", msgspec.structs.replace(options, env={**options.env, **env})))
    (shell,) = [event for event in events if isinstance(event, geminids.ToolFinished)]
    assert env["TRACEPARENT"].startswith("00-")
    assert f"trace={env['TRACEPARENT']}" in (shell.output or "")
