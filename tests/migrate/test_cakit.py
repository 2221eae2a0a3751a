"""A program of a cakit user, on the real Gemini CLI: every row of cakit's document on Gemini."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from geminids.adapters import cakit
from geminids.gateway import ReplyUsage
from hostile_repository import keys_sent
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "migrate" / "cakit.md"
KEY = "AIzaSyMadeUpKeyOfATest0123456789abcdefg"
PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
}
# A picture of one pixel, and the start of a video file.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MP4 = b"\0\0\0\x18ftypisom\0\0\2\0isommp42" + bytes(64)
# The fields that cakit's document lists.
DOCUMENTED = (
    "agent_version",
    "runtime_seconds",
    "response",
    "models_usage",
    "llm_calls",
    "tool_calls",
    "output_path",
    "raw_output",
    "trajectory_path",
    "exit_code",
)


@dataclass
class Program:
    """Calls cakit in a world, and starts `geminids` as a user does in a shell."""

    world: Any

    @property
    def records(self) -> Path:
        return Path(self.world.root / "records")

    def fields(self, **fields: Any) -> dict[str, Any]:
        world = self.world
        env = {
            "HOME": str(world.home),
            "TMPDIR": str(world.tmp),
            **world.gateway.env,
            **fields.pop("env", {}),
        }
        defaults = {"cwd": str(world.cwd), "gemini": world.version, "model": "gemini-2.5-flash", "env": env}
        return {**defaults, "record_dir": self.records, **fields}

    def run(self, prompt: str = "hello", **fields: Any) -> cakit.Record:
        return cakit.run_sync(prompt, **self.fields(**fields))

    def shell(self, *flags: str, prompt: str = "hello") -> tuple[int, dict[str, Any], str]:
        """Run `geminids run -o record --strict`. Return its exit code, the record and stderr."""
        world = self.world
        argv = [sys.executable, "-m", "geminids", "run", prompt, "-o", "record", "--strict"]
        argv += [f"--cwd={world.cwd}", f"--gemini={world.version}", "--approval=yolo", *flags]
        if not any(flag.startswith("--model=") for flag in flags):
            argv.append("--model=gemini-2.5-flash")
        env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp), **world.gateway.env}
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=170, env=env)
        return done.returncode, json.loads(done.stdout), done.stderr.decode()


@pytest.fixture
def release() -> str:
    return "0.61.0"


@pytest.fixture
def program(world: Any) -> Program:
    return Program(world)


def _mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def _stdout(record: cakit.Record | dict[str, Any]) -> list[Any]:
    raw = record["raw_output"] if isinstance(record, dict) else record.raw_output
    stdout = (raw or "").partition("\n\n----- STDERR -----\n")[0]
    return [json.loads(line) for line in stdout.splitlines()]


def _text(path: str | None) -> str:
    assert path is not None
    return Path(path).read_text()


def _inline(world: Any) -> list[tuple[str, bytes]]:
    request = next(request for request in world.gateway.requests if request.method == "stream")
    blobs = [part["inlineData"] for part in request.contents[-1]["parts"] if "inlineData" in part]
    return [(blob["mimeType"], base64.b64decode(blob["data"])) for blob in blobs]


def test_install_gives_the_requested_version(installs: Any) -> None:
    """C1: `install` returns the release with the requested version, in geminids' own folder. The CLI
    that it names prints that version."""
    gemini = cakit.install("0.61.0", places=installs)
    assert gemini.version == "0.61.0"
    assert installs.releases / "0.61.0" in gemini.entry.parents
    done = subprocess.run(
        [*gemini.command(installs), "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "0.61.0"


def test_every_field_of_a_record(program: Program) -> None:
    """C3, C4, C8: the record of a run with a tool and two models has every documented field, thinking
    and cached tokens, and private files. The strict check passes."""
    gateway = program.world.gateway
    tokens = ReplyUsage(input=1000, output=20, thinking=7, cached=300)
    gateway.when("hello", calls=[("run_shell_command", {"command": "echo tool-output"})], usage=tokens)
    gateway.when("hello", text=["It is ", "done."], usage=tokens)
    record = program.run(model="auto")
    assert cakit.check(record) == []
    assert [name for name in DOCUMENTED if getattr(record, name) is None] == []
    assert (record.exit_code, record.command_exit_code, record.error) == (0, 0, None)
    assert (record.agent, record.agent_version, record.response) == ("gemini", "0.61.0", "It is done.")
    assert (record.tool_calls, record.llm_calls) == (1, len(gateway.requests))
    assert record.runtime_seconds is not None and record.runtime_seconds > 0
    assert len(record.models_usage) == 2
    served = {request.model for request in gateway.requests if request.method == "stream"}
    [main] = [record.models_usage[str(name)] for name in served]
    assert main == cakit.ModelTokens(
        prompt_tokens=2000, completion_tokens=40, total_tokens=2054, cached_tokens=600, thinking_tokens=14
    )
    assert _text(record.output_path) == record.raw_output
    kinds = [line["type"] for line in _stdout(record)]
    assert kinds[:2] == ["init", "message"] and kinds[-1] == "result" and "tool_use" in kinds
    trajectory = _text(record.trajectory_path)
    assert trajectory.startswith("title: Coding Agent Trace\n")
    assert "text: It is done.\n" in trajectory and "command: echo tool-output\n" in trajectory
    for path in (record.output_path, record.trajectory_path, record.telemetry_log):
        assert path is not None
        assert (_mode(path), _mode(Path(path).parent)) == (0o600, 0o700)


@pytest.mark.anyio
async def test_the_async_function_gives_the_same(program: Program) -> None:
    """C3: `await run(…)` returns the same record as `run_sync(…)`, except for its files and its
    time."""
    program.world.gateway.reply(text="hi", times=2)
    awaited = await cakit.run("hello", **program.fields())
    plain = await anyio.to_thread.run_sync(program.run)
    same = dict.fromkeys(("output_path", "trajectory_path", "telemetry_log", "runtime_seconds"))
    left, right = (
        msgspec.structs.replace(record, **same, raw_output=None, models_usage={})
        for record in (awaited, plain)
    )
    assert left == right
    assert (awaited.response, cakit.check(awaited)) == ("hi", [])


def test_the_raw_output_is_what_the_cli_printed(program: Program) -> None:
    """C3: the raw output has the CLI's own lines of stdout, and then its stderr."""
    program.world.gateway.reply(text=["one ", "two"])
    code, record, stderr = program.shell()
    assert (code, stderr) == (0, "")
    lines = _stdout(record)
    assert [line["content"] for line in lines if line.get("role") == "assistant"] == ["one ", "two"]
    assert lines[-1]["stats"]["total_tokens"] > 0
    assert "YOLO mode is enabled" in record["raw_output"].partition("----- STDERR -----\n")[2]
    data = program.world.places.root / "records"
    assert Path(record["trajectory_path"]).parent.parent == data
    assert Path(record["output_path"]).read_text() == record["raw_output"]


@pytest.mark.parametrize(
    "served", ["gemini-2.5-flash-001", pytest.param("gemini-2.5-pro", marks=pytest.mark.deep)]
)
def test_another_served_model_passes(program: Program, served: str) -> None:
    """C3, C4, L10: if the API answers with another model than requested, a good run passes
    `--strict`. The served model is in the record, and the requested one is not."""
    program.world.gateway.reply(text="hi", model_version=served, usage=ReplyUsage(input=10, output=2))
    code, record, stderr = program.shell()
    assert (code, record["exit_code"], stderr) == (0, 0, "")
    assert list(record["models_usage"]) == [served]


def test_a_fallback_model_passes(program: Program) -> None:
    """C3, C4, L10: if the run continues with a fallback model, the record has that model. The failed
    request counts as a call, and `--strict` passes."""
    gateway = program.world.gateway
    gateway.reply(status=429, error="Resource exhausted", details=[PER_DAY])
    gateway.reply(text="hi")
    code, record, stderr = program.shell("--fallback-model=gemini-2.5-flash-lite")
    assert (code, stderr) == (0, "")
    assert [request.model for request in gateway.requests] == ["gemini-2.5-flash", "gemini-2.5-flash-lite"]
    assert (list(record["models_usage"]), record["llm_calls"]) == (["gemini-2.5-flash-lite"], 2)


def test_a_model_without_usage_fails_the_strict_check(program: Program) -> None:
    """C4: if the API reports no tokens, the CLI exits with 0, but `--strict` fails and names
    `models_usage`. The exit code in the record is then 1."""
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]
    }
    program.world.gateway.reply(raw=[answer])
    code, record, stderr = program.shell()
    assert (code, record["exit_code"], record["command_exit_code"]) == (3, 1, 0)
    assert stderr == "geminids: --strict: models_usage: no model with known tokens\n"


def test_an_unknown_number_of_requests_fails_the_strict_check(program: Program) -> None:
    """C4: without the gateway, the number of requests is not known. It is null, `--strict` names it,
    and nothing else is missing."""
    program.world.gateway.reply(text="hi")
    code, record, stderr = program.shell("--gateway=off")
    assert (code, record["llm_calls"], record["exit_code"]) == (3, None, 1)
    assert stderr == "geminids: --strict: llm_calls: not known\n"


def test_a_lost_trajectory_fails_the_strict_check(program: Program) -> None:
    """C4: if the trajectory cannot be written, because the agent removed the folder, the path is null,
    `--strict` fails and names it."""
    remove = {"command": f"rm -r {program.records}"}
    program.world.gateway.reply(calls=[("run_shell_command", remove)])
    program.world.gateway.reply(text="hi")
    code, record, stderr = program.shell(
        f"--record-dir={program.records}", f"--include-dir={program.records.parent}"
    )
    assert not list(program.records.glob("*")), record["raw_output"]
    assert (code, record["trajectory_path"], record["exit_code"]) == (3, None, 1)
    assert "geminids: --strict: trajectory_path: missing\n" in stderr


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response", None),
        ("response", " \n"),
        ("models_usage", {}),
        ("llm_calls", None),
        ("llm_calls", 0),
        ("tool_calls", None),
        ("tool_calls", -1),
        ("trajectory_path", None),
        ("trajectory_path", ""),
    ],
)
def test_each_invalid_field_is_named(field: str, value: object) -> None:
    """C4: the strict check names exactly the field that is missing or invalid."""
    tokens = cakit.ModelTokens(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    good = cakit.Record(
        response="hi", models_usage={"m": tokens}, llm_calls=1, tool_calls=0, trajectory_path="t", exit_code=0
    )
    assert cakit.check(good) == []
    bad = msgspec.structs.replace(good, **{field: value})
    assert [problem.field for problem in cakit.check(bad)] == [field]


def test_a_stored_report_of_the_cli(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """C5: the last JSON value of stdout of `gemini --output-format json` becomes a record. Earlier
    values and a model that is only configured do not count."""
    program.world.gateway.reply(text="hi", usage=ReplyUsage(input=10, output=2, thinking=3, cached=4))
    monkeypatch.setenv("GEMINI_MODEL", "gemini-2.5-pro")
    done = _report_of(program)
    assert done.returncode == 0, done.stderr
    stdout = done.stdout.decode()
    noise = '{"response": "early", "stats": {"models": {"x": {}}}}\nnoise\n'
    record = cakit.from_report(noise + stdout, done.stderr.decode(), exit_code=0)
    [model] = json.loads(stdout)["stats"]["models"]
    tokens = record.models_usage[model]
    assert (record.response, list(record.models_usage)) == ("hi", [model])
    assert (record.llm_calls, record.tool_calls, record.exit_code) == (1, 0, 0)
    assert (tokens.prompt_tokens, tokens.completion_tokens, tokens.total_tokens) == (10, 2, 15)
    assert (tokens.cached_tokens, tokens.thinking_tokens) == (4, 3)
    without = json.dumps({**json.loads(stdout), "stats": {}})
    record = cakit.from_report(stdout + "\n" + without, exit_code=0)
    assert (record.models_usage, record.exit_code) == ({}, 1)


def test_a_stored_error_of_the_cli(program: Program) -> None:
    """C5: after an error, the CLI prints its JSON on stderr. `convert` of that output is a record that
    names the error and has no response."""
    program.world.gateway.reply(status=400, error="no such thing", times=None)
    done = _report_of(program)
    assert done.returncode != 0
    stdout, stderr = done.stdout.decode(), done.stderr.decode()
    assert stdout.strip() == ""
    record = cakit.from_report(stdout, stderr, exit_code=done.returncode)
    assert "no such thing" in (record.error or "")
    assert (record.response, record.models_usage, record.exit_code) == (None, {}, done.returncode)
    file = program.world.root / "stderr.txt"
    file.write_text(stderr)
    argv = [sys.executable, "-m", "geminids", "convert", str(file), "--to", "record"]
    converted = subprocess.run(argv, capture_output=True, timeout=60)
    assert converted.returncode == 0, converted.stderr
    stored = json.loads(converted.stdout)
    assert "no such thing" in stored["error"]
    assert (stored["response"], stored["exit_code"]) == (None, 1)


def _report_of(program: Program) -> subprocess.CompletedProcess[bytes]:
    """Run the CLI without geminids, with the flags that cakit uses."""
    flags = ("-p", "hello", "--output-format", "json", "--approval-mode", "yolo")
    return plain_gemini(program.world, *flags)


def test_the_telemetry_log_is_private(program: Program) -> None:
    """C6: the CLI's telemetry log is in the folder of the record, and has the session and the requests
    of the run. The user's settings and `~/.gemini/telemetry.log` are not touched."""
    settings = program.world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{ "telemetry": {"enabled": false} }')
    program.world.gateway.reply(text="hi")
    record = program.run()
    log = _text(record.telemetry_log)
    assert Path(str(record.telemetry_log)).parent == Path(str(record.trajectory_path)).parent
    assert _stdout(record)[0]["session_id"] in log
    assert "gemini_cli.api_response" in log
    assert settings.read_text() == '{ "telemetry": {"enabled": false} }'
    assert not (settings.parent / "telemetry.log").exists()


@pytest.mark.parametrize("ignored", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_images_and_videos_reach_the_model(program: Program, ignored: bool) -> None:
    """C2: images and videos arrive in the request, images first, also if git ignores them. No copy is
    left behind."""
    world = program.world
    (world.cwd / ".git").mkdir()
    (world.cwd / ".gitignore").write_text("*\n" if ignored else "")
    image = world.cwd / "my cat.png"
    video = world.root / "clip.mp4"
    image.write_bytes(PNG)
    video.write_bytes(MP4)
    before = sorted(os.listdir(world.cwd))
    world.gateway.reply(text="A cat.")
    record = program.run("look", images=[str(image)], videos=[str(video)])
    assert (record.exit_code, record.response) == (0, "A cat.")
    assert _inline(world) == [("image/png", PNG), ("video/mp4", MP4)]
    assert sorted(os.listdir(world.cwd)) == before
    assert not world.places.runs.exists() or os.listdir(world.places.runs) == []


def test_a_path_in_the_prompt_is_not_copied(program: Program) -> None:
    """C2: a path that is only in the prompt is text. The file is not copied and not sent."""
    image = program.world.root / "outside.png"
    image.write_bytes(PNG)
    program.world.gateway.reply(text="I cannot see it.")
    record = program.run(f"look at {image}")
    assert (record.exit_code, _inline(program.world)) == (0, [])
    assert os.listdir(program.world.cwd) == []


def test_a_missing_image_is_bad_input(program: Program) -> None:
    """C2: an image that does not exist is refused before the CLI starts: exit code 2, and the record
    says which file."""
    record = program.run("look", images=["no-such-cat.png"])
    assert (record.exit_code, record.agent_version) == (2, None)
    assert "no-such-cat.png" in (record.error or "")
    assert program.world.gateway.requests == []
    assert _text(record.trajectory_path).startswith("title: Coding Agent Trace\n")


def test_an_image_for_a_slash_command_is_refused(program: Program) -> None:
    """C2: Gemini CLI does not send the files of a slash command, so such a run is refused before
    the start."""
    image = program.world.root / "cat.png"
    image.write_bytes(PNG)
    record = program.run("/look here", images=[str(image)])
    assert (record.exit_code, program.world.gateway.requests) == (2, [])
    assert "/look" in (record.error or "")
    program.world.gateway.reply(text="a path")
    assert program.run("/tmp/x is what?", images=[str(image)]).exit_code == 0
    assert len(_inline(program.world)) == 1


@pytest.mark.parametrize("source", ["process", "file"])
def test_the_runtime_variables(
    program: Program, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C7: GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL, GEMINI_MODEL and GOOGLE_CLOUD_PROJECT take effect,
    from the process and from an env file. The key is in no record, log, argument or file."""
    world = program.world
    caplog.set_level(logging.DEBUG)
    variables = {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": world.gateway.url,
        "GEMINI_MODEL": "gemini-2.5-pro",
        "GOOGLE_CLOUD_PROJECT": "my-project-7",
    }
    command = f"cat /proc/[0-9]*/cmdline > argv.bin; env; echo {KEY[:20]}''{KEY[20:]}"
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    world.gateway.reply(text=[f"Your key is {KEY[:20]}", f"{KEY[20:]}."])
    fields = _set_variables(program, variables, source, monkeypatch)
    record = cakit.run_sync("hello", **fields)
    assert (record.exit_code, record.response) == (0, "Your key is ***.")
    assert keys_sent(world) == {KEY}
    assert {request.model for request in world.gateway.requests} == {"gemini-2.5-pro"}
    assert "GOOGLE_CLOUD_PROJECT=my-project-7" in _text(record.trajectory_path)
    _assert_not_found(program, record, KEY, caplog.text)


@pytest.mark.parametrize("source", ["process", pytest.param("file", marks=pytest.mark.deep)])
def test_the_vertex_key(
    program: Program, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C7: GOOGLE_API_KEY takes effect with GOOGLE_GENAI_USE_VERTEXAI, as the CLI reads it, from the
    process and from an env file. The key is in no record, log or file."""
    caplog.set_level(logging.DEBUG)
    variables = {
        "GOOGLE_API_KEY": KEY,
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_VERTEX_BASE_URL": program.world.gateway.url,
    }
    program.world.gateway.reply(text="hi")
    fields = _set_variables(program, variables, source, monkeypatch)
    record = cakit.run_sync("hello", model="gemini-2.5-flash", **fields)
    assert (record.exit_code, record.response) == (0, "hi")
    assert keys_sent(program.world) == {KEY}
    assert "/publishers/google/models/" in program.world.gateway.requests[0].path
    _assert_not_found(program, record, KEY, caplog.text)


def test_the_vertex_key_alone(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GOOGLE_GENAI_USE_VERTEXAI, GOOGLE_API_KEY has no effect: the error is the CLI's own
    message, and no line that the CLI prints in every run with telemetry."""
    variables = {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": program.world.gateway.url}
    record = cakit.run_sync("hello", **_set_variables(program, variables, "process", monkeypatch))
    assert record.exit_code == 41
    assert "metricReader" in _text(record.output_path)
    assert (record.error or "").startswith("auth: Invalid auth method selected")
    assert not program.world.gateway.requests


def _set_variables(
    program: Program, variables: dict[str, str], source: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Set the variables in this process or in an env file. Return the fields for a run."""
    fields = program.fields()
    del fields["model"]
    fields["env"] = {name: fields["env"][name] for name in ("HOME", "TMPDIR")}
    if source == "process":
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return fields
    file = program.world.root / "my.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return {**fields, "env_file": str(file)}


def _assert_not_found(program: Program, record: cakit.Record, secret: str, logged: str) -> None:
    """Fail if the secret is in the record, in a log message, or in a file that geminids wrote."""
    world = program.world
    assert secret not in repr(record) and secret not in logged
    folders = (program.records, world.tmp, world.cwd, world.places.homes, world.places.runs)
    searched = 0
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                searched += 1
                assert secret.encode() not in path.read_bytes(), path
    assert searched >= 3


def test_a_failed_run_leaves_its_files(program: Program) -> None:
    """C3: the record of a failed run has the CLI's exit code, says why, and has its files."""
    program.world.gateway.reply(status=400, error="no such thing", times=None)
    record = program.run()
    assert record.exit_code not in (0, None)
    assert "no such thing" in (record.error or "")
    assert (record.response, record.agent_version, record.models_usage) == (None, "0.61.0", {})
    assert "no such thing" in _text(record.output_path)
    assert "no such thing" in _text(record.trajectory_path)
    # The CLI exits before it writes its telemetry. If it did write it, the record names the file.
    has_log = Path(str(record.output_path)).with_name("telemetry.log").exists()
    assert (record.telemetry_log is not None) == has_log


def test_two_runs_at_once_do_not_mix(program: Program) -> None:
    """C3: two runs at the same time have different folders, and each record has only its own run."""
    records: dict[str, cakit.Record] = {}

    async def run(name: str) -> None:
        program.world.gateway.when(name, text=f"answer-to-{name}")
        records[name] = await cakit.run(f"I am {name}", **program.fields())

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for name in ("alpha", "omega"):
                tasks.start_soon(run, name)

    anyio.run(main)
    for name, other in (("alpha", "omega"), ("omega", "alpha")):
        record = records[name]
        assert (record.exit_code, record.response, record.llm_calls) == (0, f"answer-to-{name}", 1)
        for path in (record.output_path, record.trajectory_path, record.telemetry_log):
            assert other not in _text(path)
        assert f"answer-to-{name}" in _text(record.trajectory_path)
    assert len(list(program.records.iterdir())) == 2


def test_the_program_of_the_page(world: Any) -> None:
    """The program in docs/migrate/cakit.md runs as it is, and prints what its comments say."""
    [code] = [block for block in _code_blocks() if "offline=True" in block]
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=world.cwd, env=env, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "0.61.0"
    assert lines[-1] == "title: Coding Agent Trace"
    assert "exit code 0" in done.stdout


def _code_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
