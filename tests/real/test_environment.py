"""Which variables reach the CLI and the programs that it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import geminids
from geminids.process.marker import MARKER
from hostile import keys_sent

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def _seen(world: Any, options: geminids.Options) -> dict[str, str]:
    """The environment of a shell tool, as it prints it."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "env -0 > seen"})])
    world.gateway.reply(text="done")
    result = geminids.ask_sync("hello", replace(options, approval="yolo"))
    assert result.ok, result.failure
    pairs = Path(options.cwd, "seen").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_env_only_keeps_the_rest_out(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool sees what was named, what a program needs, and the mark by which the run can be ended: no more."""
    monkeypatch.setenv("MY_TOKEN", "hidden-value-1")
    monkeypatch.setenv("MY_CHOICE", "shown")
    own = {**world.options().env, "MULTI": "two\nlines '\"$x"}
    seen = _seen(world, world.options(env=own, env_only=("MY_CHOICE",)))
    assert "MY_TOKEN" not in seen
    assert (seen["MY_CHOICE"], seen["MULTI"]) == ("shown", "two\nlines '\"$x")
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["HOME"] == str(world.home)
    assert os.environ[MARKER] in seen[MARKER].split(), "the mark of the outer run is there too"


@deep
def test_without_env_only_all_is_passed_on(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side."""
    monkeypatch.setenv("MY_TOKEN", "shown-value-1")
    assert _seen(world, world.options())["MY_TOKEN"] == "shown-value-1"


@deep
def test_a_run_with_env_only_can_be_stopped(stage: Any) -> None:
    """A tool that ignores TERM, in a run with an empty environment, is ended all the same."""
    state = stage("stubborn")
    world = state.world

    async def main() -> Any:
        async with geminids.open_run("hello", world.options(**state.options, env_only=())) as run:
            await state.reached()
            run.stop()
            async for _ in run:
                pass
        return run.result

    import anyio

    result = anyio.run(main)
    assert result.outcome == "interrupted"
    state.assert_gone()


@deep
def test_an_env_file_signs_in_and_chooses(world: Any) -> None:
    """GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL, GEMINI_MODEL and GOOGLE_CLOUD_PROJECT from an env file."""
    file = world.root / "my.env"
    file.write_text(
        "GEMINI_API_KEY=a-key-from-a-file-1\n"
        f"export GOOGLE_GEMINI_BASE_URL='{world.gateway.url}'\n"
        "GEMINI_MODEL=gemini-2.5-flash\nGOOGLE_CLOUD_PROJECT=my-project\n"
    )
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    options = replace(world.options(), env=env, env_file=str(file), model=None)
    seen = _seen(world, options)
    assert keys_sent(world) == {"a-key-from-a-file-1"}
    assert {request.model for request in world.gateway.requests} == {"gemini-2.5-flash"}
    assert seen["GOOGLE_CLOUD_PROJECT"] == "my-project"


@deep
def test_a_vertex_key_from_an_env_file(world: Any) -> None:
    """GOOGLE_API_KEY with GOOGLE_GENAI_USE_VERTEXAI, as the CLI wants it, arrives with the request."""
    file = world.root / "my.env"
    file.write_text(
        "GOOGLE_API_KEY=a-vertex-key-in-a-file\nGOOGLE_GENAI_USE_VERTEXAI=true\n"
        f"GOOGLE_VERTEX_BASE_URL={world.gateway.url}\n"
    )
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    options = replace(world.options(), env=env, env_file=str(file), max_attempts=1, timeout=30.0)
    world.gateway.reply(text="hi")
    geminids.ask_sync("hello", options)
    assert world.gateway.requests
    assert keys_sent(world) == {"a-vertex-key-in-a-file"}


@deep
def test_env_beats_the_env_file(world: Any) -> None:
    """`env` is the caller's last word."""
    file = world.root / "my.env"
    file.write_text("GEMINI_API_KEY=a-key-from-a-file-1\nA_VARIABLE=file\n")
    seen = _seen(world, world.options(env_file=str(file), env={"A_VARIABLE": "caller"}))
    assert seen["A_VARIABLE"] == "caller"
    assert keys_sent(world) == {world.gateway.env["GEMINI_API_KEY"]}
