"""Known secrets appear nowhere: not in events, results, errors, output, files, nor in any process's words.

The CLI's own session files (HOME/.gemini/tmp) are out of our hands, and the docs say so: they are not looked at.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import anyio
import msgspec
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


def _clean(what: object) -> None:
    """No secret, nor a telling part of one, is in this text, value or blob."""
    blob = what if isinstance(what, bytes) else str(what).encode("utf-8", "replace")
    for secret in (KEY, TOKEN, KEY[:20], KEY[-20:]):
        at = blob.find(secret.encode())
        if at >= 0:  # not `assert`, which would show all of it: the tester's own environment may be in there
            pytest.fail(f"{secret[:10]}... is shown after {blob[max(0, at - 60) : at]!r}")


def _clean_files(*roots: Path) -> None:
    """No file below these folders holds a secret; links are not followed, a user's own tree is not ours."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                file = Path(folder, name)
                if file.is_file() and not file.is_symlink():
                    _clean(file.read_bytes())


def _clean_run(events: list[Any], world: Any) -> Finished:
    for event in events:
        _clean(encode_event(event))
        _clean(repr(event))
    _clean_files(world.tmp, world.places.root, world.cwd)
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished


def _printed(world: Any, events: list[Any]) -> str:
    """What the one shell tool has printed, as the run shows it."""
    [tool] = [event for event in events if isinstance(event, ToolFinished)]
    assert tool.output is not None
    return str(tool.output)


def _shell(world: Any, command: str) -> None:
    world.gateway.reply(calls=[("run_shell_command", {"command": command})])
    world.gateway.reply(text="done")


def test_a_tool_that_prints_its_environment(world: Any) -> None:
    """A shell tool that prints its environment shows `***` for what is secret, and the rest as it is."""
    _shell(world, "env")
    events = world.events(approval="yolo", env={**SECRETS, "PLAIN_SETTING": "plain-value-7"})
    assert world.gateway.requests[0].key == KEY  # the CLI itself had it
    assert _clean_run(events, world).outcome == "success"
    printed = _printed(world, events)
    assert "GEMINI_API_KEY=***" in printed
    assert "MY_SERVICE_TOKEN=***" in printed
    assert f"HOME={world.home}" in printed
    assert "PLAIN_SETTING=plain-value-7" in printed


@pytest.mark.parametrize("cut", [20, *(pytest.param(cut, marks=pytest.mark.deep) for cut in (1, 38))])
def test_a_model_that_repeats_the_key(world: Any, cut: int) -> None:
    """A key in the model's text is masked, also where it comes in two pieces."""
    world.gateway.reply(text=[f"Your key is {KEY[:cut]}", f"{KEY[cut:]}, ", "keep it."])
    finished = _clean_run(world.events(env=SECRETS), world)
    assert finished.answer == "Your key is ***, keep it."


def test_a_model_that_writes_the_key_into_a_call(world: Any) -> None:
    """What a tool was called with, and the title made of that, hold no secret."""
    _shell(world, f"echo {KEY} {'x' * 150} {TOKEN}")
    events = world.events(approval="yolo", env=SECRETS)
    assert _clean_run(events, world).outcome == "success"


def test_an_api_error_that_names_the_key(world: Any) -> None:
    """The message, the stderr tail and the exception of a failed run hold no secret."""
    world.gateway.reply(status=400, error=f"API key {KEY} is not valid for {TOKEN}", times=None)
    events = world.events(env=SECRETS, max_attempts=1)
    finished = _clean_run(events, world)
    assert finished.outcome == "failed"
    assert finished.failure is not None
    assert "***" in finished.failure.message
    assert finished.failure.stderr_tail
    for report in world.tmp.rglob("gemini-client-error-*"):  # the CLI leaves it for everybody to read
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
        _clean(shown)
    _clean(msgspec.json.encode(caught.value.result))


def test_no_process_shows_a_secret_in_its_words(world: Any) -> None:
    """While a run goes on, no process of it has a secret in its argv; the guard has it nowhere at all."""
    _shell(world, "touch here; until test -e go; do sleep 0.05; done")
    words: list[str] = []

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(approval="yolo", env=SECRETS)) as run:
            with anyio.fail_after(90):
                while not (world.cwd / "here").exists():
                    await anyio.sleep(0.02)
            words.extend(str(process.cmdline()) for process in marked(os.environ[MARKER]))
            guard = guard_of()
            assert guard is not None
            words.append(str(guard.cmdline()))
            _clean(guard.environ())
            (world.cwd / "go").touch()
            async for _ in run:
                pass
        return run.result

    assert anyio.run(main).outcome == "success"
    assert len(words) >= 3
    for line in words:
        _clean(line)


# The key lies before, and then across, the place where a long command is cut.
@pytest.mark.parametrize("pad", [pytest.param(1, marks=pytest.mark.deep), 175])
def test_an_ended_process_with_a_secret_in_its_words(world: Any, pad: int) -> None:
    """What had to be ended is listed without the secret in its words, also where the list cuts them short."""
    _shell(world, f"true; sh -c 'touch here; sleep 300' {'x' * pad} {KEY}")

    async def main() -> geminids.Result:
        async with geminids.open_run("hello", world.options(approval="yolo", env=SECRETS)) as run:
            with anyio.fail_after(90):
                while not (world.cwd / "here").exists():
                    await anyio.sleep(0.02)
        return run.result

    result = anyio.run(main)
    assert result.outcome == "interrupted"
    assert any(one.command.startswith("sh -c touch here") for one in result.ended)
    _clean(result)


@pytest.mark.parametrize("output", ["events", "text", "pretty"])
def test_the_command_prints_no_secret(world: Any, hosts: Any, output: str) -> None:
    """Neither stdout nor stderr nor the saved events of `geminids run` hold a secret."""
    saved = world.root / "saved.jsonl"
    world.gateway.reply(text=["first ", KEY[:9]], calls=[("run_shell_command", {"command": "env"})])
    world.gateway.reply(text=[f"it is {KEY[:30]}", KEY[30:]])
    host = hosts.run("--approval=yolo", f"--save-events={saved}", env=SECRETS, output=output)
    assert host.wait(60) == 0
    for file in (hosts.events, hosts.errors, saved):
        _clean(file.read_bytes())
    assert "***" in hosts.events.read_text()
    assert saved.stat().st_mode & 0o777 == 0o600
    _clean_files(world.tmp, world.places.root, world.cwd)


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
    """What is said about a bad option never shows the value that may be a secret."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("hello", cwd=str(tmp_path), **fields)
    for shown in (str(caught.value), repr(caught.value), pickle.dumps(caught.value)):
        _clean(shown)


def test_a_key_of_this_process_is_a_secret_too(
    world: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys from the host's own environment and from an env file are known as well as those of `env`."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", TOKEN)
    file = tmp_path / "keys.env"
    file.write_text(f"OTHER_API_KEY='{KEY}'\n")
    _shell(world, "env")
    events = world.events(approval="yolo", env_file=str(file))
    assert _clean_run(events, world).outcome == "success"
    printed = _printed(world, events)
    assert "OTHER_API_KEY=***" in printed
    assert "MY_SERVICE_TOKEN=***" in printed


@pytest.mark.parametrize(
    "where",
    [
        "home/.gemini/.env",
        pytest.param("home/.env", marks=pytest.mark.deep),
        pytest.param("work/.env", marks=pytest.mark.deep),
        pytest.param("work/.gemini/.env", marks=pytest.mark.deep),
    ],
)
def test_a_key_that_the_cli_reads_from_a_file(world: Any, where: str) -> None:
    """The CLI reads `.env` files by itself, of the user and of the folder: what they hold is known too."""
    file = world.root / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"# mine\nMY_SERVICE_TOKEN='{TOKEN}'\nnot a line\nexport OTHER_API_KEY={KEY}\n")
    _shell(world, "env; cat .env .gemini/.env $HOME/.env $HOME/.gemini/.env 2>/dev/null; true")
    events = world.events(approval="yolo")
    for event in events:
        _clean(encode_event(event))
    assert events[-1].outcome == "success"
    assert "MY_SERVICE_TOKEN='***'" in _printed(world, events)
