"""Known secrets appear in no event, result, error, output, file or process argument of a run.

The tests do not check the CLI's own session files (HOME/.gemini/tmp): geminids does not mask them,
as the docs say.
"""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

import geminids
from geminids import OptionsError, RunFailed
from geminids.events.model import Finished, ToolFinished, encode_event
from geminids.process.marker import MARKER
from geminids.process.tree import marked
from guard_process import guard_of

pytestmark = pytest.mark.real

KEY = "AIzaSy" + "D3adB33f-" * 3 + "c0ffee"  # as long as a real one
TOKEN = "tok_live_7f3Qx9LmZ2"
SECRETS = {"GEMINI_API_KEY": KEY, "MY_SERVICE_TOKEN": TOKEN}


def _assert_no_secret(value: object) -> None:
    """Fail if a secret, or a long part of one, is in this value."""
    blob = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    for secret in (KEY, TOKEN, KEY[:20], KEY[-20:]):
        at = blob.find(secret.encode())
        if at >= 0:  # `assert` would print the whole value, which may have the tester's own environment
            pytest.fail(f"{secret[:10]}... occurs after {blob[max(0, at - 60) : at]!r}")


def _assert_no_secret_in_files(*roots: Path) -> None:
    """Fail if a file below these folders has a secret. Links are not followed, because they lead to
    the user's own files."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                file = Path(folder, name)
                if file.is_file() and not file.is_symlink():
                    _assert_no_secret(file.read_bytes())


def _assert_no_secret_in_run(events: list[Any], world: Any) -> Finished:
    for event in events:
        _assert_no_secret(encode_event(event))
        _assert_no_secret(repr(event))
    _assert_no_secret_in_files(world.tmp, world.places.root, world.cwd)
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished


def _tool_output(world: Any, events: list[Any]) -> str:
    """Return the output of the run's only tool call, as the events report it."""
    [tool] = [event for event in events if isinstance(event, ToolFinished)]
    assert tool.output is not None
    return str(tool.output)


def _script_shell_call(world: Any, command: str) -> None:
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    world.gateway.reply(text="done")


def test_a_tool_that_prints_its_environment(world: Any) -> None:
    """In the output of a shell tool that prints its environment, secret values are `***` and other
    values are unchanged."""
    _script_shell_call(world, "env")
    events = world.events(approval="yolo", env={**SECRETS, "PLAIN_SETTING": "plain-value-7"})
    assert world.gateway.requests[0].key == KEY  # the CLI itself had it
    assert _assert_no_secret_in_run(events, world).outcome == "success"
    printed = _tool_output(world, events)
    assert "GEMINI_API_KEY=***" in printed
    assert "MY_SERVICE_TOKEN=***" in printed
    assert f"HOME={world.home}" in printed
    assert "PLAIN_SETTING=plain-value-7" in printed


@pytest.mark.parametrize("cut", [20, *(pytest.param(cut, marks=pytest.mark.deep) for cut in (1, 38))])
def test_a_model_that_repeats_the_key(world: Any, cut: int) -> None:
    """A key in the model's text is masked, although it arrives in two pieces."""
    world.gateway.reply(text=[f"Your key is {KEY[:cut]}", f"{KEY[cut:]}, ", "keep it."])
    finished = _assert_no_secret_in_run(world.events(env=SECRETS), world)
    assert finished.answer == "Your key is ***, keep it."


def test_a_model_that_writes_the_key_into_a_call(world: Any) -> None:
    """Secrets in the arguments of a tool call are masked in all events."""
    _script_shell_call(world, f"echo {KEY} {'x' * 150} {TOKEN}")
    events = world.events(approval="yolo", env=SECRETS)
    assert _assert_no_secret_in_run(events, world).outcome == "success"


def test_an_api_error_that_names_the_key(world: Any) -> None:
    """The message, the stderr tail and the exception of a failed run contain no secret. The CLI's
    error report is masked, and only its owner can read it."""
    world.gateway.reply(status=400, error=f"API key {KEY} is not valid for {TOKEN}", times=None)
    events = world.events(env=SECRETS, max_attempts=1)
    finished = _assert_no_secret_in_run(events, world)
    assert finished.outcome == "failed"
    assert finished.failure is not None
    assert "***" in finished.failure.message
    assert finished.failure.stderr_tail
    for report in world.tmp.rglob("gemini-client-error-*"):  # the CLI writes it readable for all users
        assert report.stat().st_mode & 0o777 == 0o600
        assert "***" in report.read_text()
    with pytest.raises(RunFailed) as caught:
        geminids.Result.of(finished).raise_for_failure()
    for shown in (
        str(caught.value),
        repr(caught.value),
        pickle.dumps(caught.value),
        repr(caught.value.result),
    ):
        _assert_no_secret(shown)
    _assert_no_secret(msgspec.json.encode(caught.value.result))


def test_no_process_has_a_secret_in_its_arguments(world: Any) -> None:
    """No process of a run has a secret in its arguments. The guard process has no secret in its
    environment either."""
    _script_shell_call(world, "touch here; until test -e go; do sleep 0.05; done")
    command_lines: list[str] = []

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(approval="yolo", env=SECRETS)) as run:
            with anyio.fail_after(90):
                while not (world.cwd / "here").exists():
                    await anyio.sleep(0.02)
            for process in marked(os.environ[MARKER]):
                with suppress(psutil.NoSuchProcess):  # a `sleep` of the shell that has just ended
                    command_lines.append(str(process.cmdline()))
            guard = guard_of()
            assert guard is not None
            command_lines.append(str(guard.cmdline()))
            _assert_no_secret(guard.environ())
            (world.cwd / "go").touch()
            async for _ in run:
                pass
        return run.result

    assert anyio.run(main).outcome == "success"
    assert len(command_lines) >= 3
    for line in command_lines:
        _assert_no_secret(line)


# With the first length the key is before the position where a long command is cut; with the second,
# across it.
@pytest.mark.parametrize("pad", [pytest.param(1, marks=pytest.mark.deep), 175])
def test_an_ended_process_is_listed_without_secrets(world: Any, pad: int) -> None:
    """The result lists a process that it ended without the secret in its command line, also if the
    command line is shortened."""
    _script_shell_call(world, f"true; sh -c 'touch here; sleep 300' {'x' * pad} {KEY}")

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(approval="yolo", env=SECRETS)) as run:
            with anyio.fail_after(90):
                while not (world.cwd / "here").exists():
                    await anyio.sleep(0.02)
        return run.result

    result = anyio.run(main)
    assert result.outcome == "interrupted"
    assert any(one.command.startswith("sh -c touch here") for one in result.ended)
    _assert_no_secret(result)


@pytest.mark.parametrize("output", ["events", "text", "pretty"])
def test_the_command_prints_no_secret(world: Any, hosts: Any, output: str) -> None:
    """Stdout, stderr and the saved events of `geminids run` contain no secret. Only their owner can
    read the saved events."""
    saved = world.root / "saved.jsonl"
    world.gateway.reply(text=["first ", KEY[:9]], calls=[("run_shell_command", {"command": "env"})])
    world.gateway.reply(text=[f"it is {KEY[:30]}", KEY[30:]])
    host = hosts.run("--approval=yolo", f"--save-events={saved}", env=SECRETS, output=output)
    assert host.wait(60) == 0
    for file in (hosts.events, hosts.errors, saved):
        _assert_no_secret(file.read_bytes())
    assert "***" in hosts.events.read_text()
    assert saved.stat().st_mode & 0o777 == 0o600
    _assert_no_secret_in_files(world.tmp, world.places.root, world.cwd)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"env": f"GEMINI_API_KEY={KEY}"}, id="env as text"),
        pytest.param({"env": [f"GEMINI_API_KEY={KEY}"]}, id="env as a list"),
        pytest.param({"env": {f"GEMINI_API_KEY={KEY}": ""}}, id="a pair as a name"),
        pytest.param({"env": {"GEMINI_API_KEY": KEY.encode()}}, id="bytes"),
        pytest.param({"env": {"GEMINI_API_KEY": KEY}, "model": f"{KEY} x"}, id="a known key elsewhere"),
    ],
)
def test_bad_options_show_no_secret(fields: dict[str, Any], tmp_path: Path) -> None:
    """The message about a bad option never shows a value that may be a secret."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hello", cwd=str(tmp_path), **fields)
    for shown in (str(caught.value), repr(caught.value), pickle.dumps(caught.value)):
        _assert_no_secret(shown)


def test_a_key_of_this_process_is_a_secret_too(
    world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys from the host's environment and from `env_file` are masked, like those in `env`."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", TOKEN)
    file = tmp_path / "keys.env"
    file.write_text(f"OTHER_API_KEY='{KEY}'\n")
    _script_shell_call(world, "env")
    events = world.events(approval="yolo", env_file=str(file))
    assert _assert_no_secret_in_run(events, world).outcome == "success"
    printed = _tool_output(world, events)
    assert "OTHER_API_KEY=***" in printed
    assert "MY_SERVICE_TOKEN=***" in printed


@pytest.mark.parametrize(
    "env_file",
    [
        "home/.gemini/.env",
        pytest.param("home/.env", marks=pytest.mark.deep),
        pytest.param("work/.env", marks=pytest.mark.deep),
        pytest.param("work/.gemini/.env", marks=pytest.mark.deep),
    ],
)
def test_a_key_that_the_cli_reads_from_a_file(world: Any, env_file: str) -> None:
    """The CLI itself reads `.env` files of the user and of the folder. Keys in them are masked
    too."""
    file = world.root / env_file
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# mine\nMY_SERVICE_TOKEN='{TOKEN}'\nnot a line\nexport OTHER_API_KEY={KEY}\n")
    _script_shell_call(world, "env; cat .env .gemini/.env $HOME/.env $HOME/.gemini/.env 2>/dev/null; true")
    events = world.events(approval="yolo")
    for event in events:
        _assert_no_secret(encode_event(event))
    assert events[-1].outcome == "success"
    assert "MY_SERVICE_TOKEN='***'" in _tool_output(world, events)
